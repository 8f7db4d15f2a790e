"""What a request asks of the list: words of its address, checked one by one and made into SQL."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trajkit.errors import QueryError, RequestError
from trajkit.store.engine import literal
from trajkit.store.layout import quoted
from trajkit.store.nameable import nearest
from trajkit.viewer.index import FACETS, SORTED, Index

_LONGEST = 10_000
"""Characters of a condition, or of what is searched for."""
_MOST_VALUES = 500
_MOST_SEARCHED = 50
"""Different words of a search. Measured: 1,600 take 19 s and 1.6 GB, for whatever episodes."""
_ENDS = {"min": ">=", "max": "<="}
_NO = ("", "0", "false", "no")

Words = Mapping[str, Sequence[str]]
"""The words of an address, each with all its values."""


@dataclass(frozen=True)
class Asked:
    """Which episodes, as SQL over the index."""

    conditions: dict[str, str]
    """By the word that asks; each must be true."""
    searched: str | None = None
    """A condition that looks into long texts; None for none."""
    where: str | None = None
    """A condition in the words of `trajkit select`; None for none."""


def asked(words: Words, index: Index) -> Asked:
    """Read facets, bounds, `q` and `where`; every other word is refused.

    Args:
        words: Without those that say in which order and how many.
        index: Says which numbers there are.

    Raises:
        QueryError: A word is not known.
        RequestError: A value makes no sense.
    """
    conditions: dict[str, str] = {}
    for word, values in words.items():
        name, _, end = word.rpartition(".")
        if word in FACETS:
            conditions[word] = _one_of(word, values)
        elif end in _ENDS and name in index.numbers:
            bound = _number(word, one(word, values))
            conditions[word] = f"{index.numbers[name]} {_ENDS[end]} CAST({bound!r} AS DOUBLE)"
        elif word not in ("q", "where"):
            bounds = [f"{name}.{end}" for name in index.numbers for end in _ENDS]
            raise unknown(word, [*FACETS, "q", "where", *bounds])
    searched = " AND ".join(_searched(one("q", words.get("q", ("",)))))
    where = one("where", words.get("where", ("",))).strip()
    return Asked(conditions, searched or None, where or None)


def order(words: Words, index: Index) -> str:
    """What stands in ORDER BY; what is not known comes last, and no two episodes are equal.

    Raises:
        QueryError: `sort` is not something to sort by.
    """
    name = one("sort", words.get("sort", ("",)))
    known = sortable(index)
    if name and name not in known:
        raise QueryError(f"one cannot sort by {name[:80]!r}", hint=nearest(name[:80], known))
    is_descending = one("descending", words.get("descending", ("",))).lower() not in _NO
    direction = "DESC" if is_descending else "ASC"
    if not name:
        return f"n {direction}"
    return f"{index.numbers.get(name, quoted(name))} {direction} NULLS LAST, n"


def sortable(index: Index) -> list[str]:
    """What one may sort by."""
    return [*SORTED, *index.numbers]


def one(word: str, values: Sequence[str]) -> str:
    """The only value of a word.

    Raises:
        RequestError: There are several, or it is too long.
    """
    if len(values) != 1:
        raise RequestError(f"{word} is given {len(values)} times; once is enough")
    if len(values[0]) > _LONGEST:
        raise RequestError(f"{word} has {len(values[0]):,} characters; at most {_LONGEST:,} are read")
    return values[0]


def whole(words: Words, word: str, default: int | None = None, *, most: int | None = None) -> int:
    """A whole number of 0 or more; `default` where nothing is said.

    Args:
        words: Of the request.
        word: Which of them.
        default: None where something must be said.
        most: What a larger number is taken for.

    Raises:
        RequestError: It is not one, or it is missing.
    """
    if word not in words:
        if default is None:
            raise RequestError(f"{word} is missing", hint="a whole number of 0 or more")
        return default
    text = one(word, words[word])
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise RequestError(f"{word} is {text[:40]!r}; it is a whole number of 0 or more")
    return int(text) if most is None else min(int(text), most)


def refuse_others(words: Words, known: Sequence[str] = ()) -> None:
    """Refuse every word but these.

    Raises:
        QueryError: There is another.
    """
    for word in words:
        if word not in known:
            raise unknown(word, known)


def unknown(word: str, known: Iterable[str]) -> QueryError:
    """The error that says which words are near."""
    return QueryError(f"{word[:80]!r} asks for nothing here", hint=nearest(word[:80], known))


def _number(word: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RequestError(f"{word} is {text[:40]!r}; it is a number")
    return value


def _one_of(facet: str, values: Sequence[str]) -> str:
    """The condition that a facet has one of these values; an empty one stands for what is not known."""
    if len(values) > _MOST_VALUES:
        raise RequestError(f"{facet} is given {len(values):,} times; at most {_MOST_VALUES} are read")
    column = quoted(facet)
    parts = [f"{column} IS NULL"] if "" in values else []
    if known := ", ".join(literal(value) for value in dict.fromkeys(values) if value):
        parts.append(f"CAST({column} AS VARCHAR) IN ({known})")
    return f"({' OR '.join(parts)})"


def _searched(text: str) -> Iterator[str]:
    """Every word must occur."""
    pieces = dict.fromkeys(text.lower().split())
    if len(pieces) > _MOST_SEARCHED:
        raise RequestError(f"q has {len(pieces):,} words; at most {_MOST_SEARCHED} are searched for")
    for piece in pieces:
        yield f"contains(haystack, {literal(piece)})"
