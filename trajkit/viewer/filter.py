"""Read the parameters of a request for the list: each is checked and converted to SQL."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trajkit.errors import QueryError, RequestError
from trajkit.store.conditions.nameable import nearest
from trajkit.store.engine import literal
from trajkit.store.layout import quoted
from trajkit.viewer.index import FACETS, SORTED, Index

_LONGEST = 10_000
"""Maximum characters of a condition or a search text."""
_MOST_VALUES = 500
_MOST_SEARCHED = 50
"""Maximum distinct words of a search. Measured: 1,600 words take 19 s and 1.6 GB for any store."""
_ENDS = {"min": ">=", "max": "<="}
_NO = ("", "0", "false", "no")
_ORDERING = ("sort", "descending", "offset", "limit")
"""Parameters for order and range, which do not filter."""

Words = Mapping[str, Sequence[str]]
"""Parameters of an address, each with all its values."""


@dataclass(frozen=True)
class Filter:
    """A choice of episodes, as SQL over the index."""

    conditions: dict[str, str]
    """Conditions by parameter; all of them must be true."""
    searched: str | None = None
    """Condition that searches long texts; None for no search."""
    where: str | None = None
    """Condition in the language of `trajkit select`; None for none."""


def read_filter(words: Words, index: Index) -> Filter:
    """Read facets, bounds, `q` and `where`; all others but those for order and range are refused.

    Args:
        words: Parameters of the request.
        index: Gives the names of the numeric columns.

    Raises:
        QueryError: A parameter is unknown.
        RequestError: A value is invalid.
    """
    conditions: dict[str, str] = {}
    for word, values in words.items():
        name, _, end = word.rpartition(".")
        if word in FACETS:
            conditions[word] = _one_of(word, values)
        elif end in _ENDS and name in index.numbers:
            bound = _number(word, one(word, values))
            conditions[word] = f"{index.numbers[name]} {_ENDS[end]} CAST({bound!r} AS DOUBLE)"
        elif word not in ("q", "where", *_ORDERING):
            bounds = [f"{name}.{end}" for name in index.numbers for end in _ENDS]
            raise unknown(word, [*FACETS, "q", "where", *bounds])
    searched = " AND ".join(_searched(one("q", words.get("q", ("",)))))
    where = one("where", words.get("where", ("",))).strip()
    return Filter(conditions, searched or None, where or None)


def order(words: Words, index: Index) -> str:
    """Return the content of ORDER BY: unknown values come last, and the order is total.

    Raises:
        QueryError: `sort` is not a column to sort by.
    """
    name = one("sort", words.get("sort", ("",)))
    known = sortable(index)
    if name and name not in known:
        raise QueryError(f"{name[:80]!r} is not a column to sort by", hint=nearest(name[:80], known))
    is_descending = one("descending", words.get("descending", ("",))).lower() not in _NO
    direction = "DESC" if is_descending else "ASC"
    if not name:
        return f"n {direction}"
    return f"{index.numbers.get(name, quoted(name))} {direction} NULLS LAST, n"


def sortable(index: Index) -> list[str]:
    """Return the columns to sort by."""
    return [*SORTED, *index.numbers]


def one(word: str, values: Sequence[str]) -> str:
    """Return the only value of a parameter.

    Raises:
        RequestError: There are several values, or the value is too long.
    """
    if len(values) != 1:
        raise RequestError(f"{word} is given {len(values)} times; once is enough")
    if len(values[0]) > _LONGEST:
        raise RequestError(f"{word} has {len(values[0]):,} characters; at most {_LONGEST:,} are read")
    return values[0]


def whole(words: Words, word: str, default: int | None = None, *, most: int | None = None) -> int:
    """Return a whole number of 0 or more; `default` where the parameter is missing.

    Args:
        words: Parameters of the request.
        word: Name of the parameter.
        default: None if the parameter is required.
        most: Larger numbers are reduced to this.

    Raises:
        RequestError: The value is not such a number, or is missing.
    """
    if word not in words:
        if default is None:
            raise RequestError(f"{word} is missing", hint="a whole number of 0 or more")
        return default
    text = one(word, words[word])
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise RequestError(f"{word} is {text[:40]!r}; it must be a whole number of 0 or more")
    return int(text) if most is None else min(int(text), most)


def refuse_others(words: Words, known: Sequence[str] = ()) -> None:
    """Refuse every parameter but these.

    Raises:
        QueryError: There is another parameter.
    """
    for word in words:
        if word not in known:
            raise unknown(word, known)


def unknown(word: str, known: Iterable[str]) -> QueryError:
    """Return the error for an unknown parameter, with similar names."""
    return QueryError(f"{word[:80]!r} is not a parameter of this address", hint=nearest(word[:80], known))


def _number(word: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RequestError(f"{word} is {text[:40]!r}; it must be a number")
    return value


def _one_of(facet: str, values: Sequence[str]) -> str:
    """Return the condition that a facet has one of these values; "" stands for unknown."""
    if len(values) > _MOST_VALUES:
        raise RequestError(f"{facet} is given {len(values):,} times; at most {_MOST_VALUES} are read")
    column = quoted(facet)
    parts = [f"{column} IS NULL"] if "" in values else []
    if known := ", ".join(literal(value) for value in dict.fromkeys(values) if value):
        parts.append(f"CAST({column} AS VARCHAR) IN ({known})")
    return f"({' OR '.join(parts)})"


def _searched(text: str) -> Iterator[str]:
    """Yield a condition for each word; every word must occur."""
    pieces = dict.fromkeys(text.lower().split())
    if len(pieces) > _MOST_SEARCHED:
        raise RequestError(f"q has {len(pieces):,} words; at most {_MOST_SEARCHED} are searched for")
    for piece in pieces:
        yield f"contains(haystack, {literal(piece)})"
