"""Tokenize a condition, and rewrite the forms that SQL lacks: `0 < avg < 1` and `pass@4`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from trajkit.errors import QueryError
from trajkit.store.engine import DEEPEST, MOST_CHARACTERS, too_deep

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<text>'(?:[^']|'')*')
  | (?P<quoted>"(?:[^"]|"")*")
  | (?P<attempts>pass@[0-9]+)
  | (?P<number>(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<name>[^\W\d]\w*)
  | (?P<comparison><=|>=|<>|!=|==|=(?!>)|<(?![<@&|])|>(?![>@&|]))
  | (?P<open>[(\[{])
  | (?P<close>[)\]}])
  | (?P<operator>->>|->|::|!~~\*|!~~|~~\*|~~|!~\*|!~|\*\*|//|\|\||[-+*/%~^,.:&|])
    """,
    re.VERBOSE | re.IGNORECASE,
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
# tokens that end one side of a comparison, and tokens that must not be in a chain of comparisons
_ENDS = frozenset({"and", "or", "not", "case", "when", "then", "else", "end", ","})
_APART = frozenset({"in", "like", "ilike", "between", "is", "similar", "glob", "escape", ":", "->"})


class Token(NamedTuple):
    """One token of a condition."""

    kind: str
    text: str
    position: int
    """Offset of its first character."""


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a condition, without spaces.

    Raises:
        QueryError: A character is not allowed, a text does not end, brackets do not match, or the text is too
            long or nested too deep.
    """
    if len(text) > MOST_CHARACTERS:
        raise QueryError(f"the condition has {len(text):,} characters; at most {MOST_CHARACTERS:,} are read")
    found: list[Token] = []
    open_brackets: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unreadable(text, position)
        token = Token(str(match.lastgroup), match[0], position)
        position = match.end()
        if token.kind == "open":
            open_brackets.append(token)
            if len(open_brackets) > DEEPEST:
                raise too_deep()
        elif token.kind == "close" and (
            not open_brackets or _CLOSING[open_brackets.pop().text] != token.text
        ):
            raise QueryError(f"{token.text!r} at {at(text, token.position)} closes nothing")
        if token.kind != "space":
            found.append(token)
    if open_brackets:
        raise QueryError(
            f"{open_brackets[-1].text!r} at {at(text, open_brackets[-1].position)} is not closed"
        )
    if not found:
        raise QueryError("the condition is empty", hint="such as episode_return >= 0.7")
    return found


def at(text: str, position: int) -> str:
    """Name a place in a condition, for a message."""
    return f"character {position + 1} of {text if len(text) <= 300 else f'{text[:300]}…'!r}"


def as_sql(tokens: Sequence[Token]) -> str:
    """Write the tokens as SQL, with chains of comparisons split, and `pass@4` quoted."""
    sql, end = _level(tokens, 0)
    assert end == len(tokens)  # brackets were matched by tokens_of
    return sql


def _level(tokens: Sequence[Token], start: int) -> tuple[str, int]:
    """Write the tokens up to a closing bracket or the end, and return its index."""
    done: list[str] = []
    sides: list[list[str]] = [[]]
    comparisons: list[str] = []
    position = start
    while position < len(tokens) and tokens[position].kind != "close":
        token = tokens[position]
        position += 1
        if token.kind == "open":
            inner, end = _level(tokens, position)
            sides[-1].append(f"{token.text}{inner}{tokens[end].text}")
            position = end + 1
        elif token.kind == "comparison":
            comparisons.append("=" if token.text == "==" else token.text)
            sides.append([])
        elif token.text.lower() in _ENDS:
            done += [_unchained(sides, comparisons), token.text]
            sides, comparisons = [[]], []
        else:
            sides[-1].append(f'"{token.text.lower()}"' if token.kind == "attempts" else token.text)
    return " ".join([*done, _unchained(sides, comparisons)]), position


def _unchained(sides: list[list[str]], comparisons: list[str]) -> str:
    """Rewrite `a < b < c` as `(a < b AND b < c)`; one comparison, or none, stays as it is."""
    is_plain = len(comparisons) < 2 or any(word.lower() in _APART for side in sides for word in side)
    texts = [" ".join(side) for side in sides]
    if is_plain:
        words = [texts[0]]
        for comparison, side in zip(comparisons, texts[1:], strict=True):
            words += [comparison, side]
        return " ".join(words)
    # a side between two comparisons is written twice, and at each depth of brackets again
    if sum(map(len, texts)) > MOST_CHARACTERS // 2:
        raise QueryError("the comparisons of the condition are chained too deep", hint="write it with `and`")
    pairs = [f"{texts[i]} {comparison} {texts[i + 1]}" for i, comparison in enumerate(comparisons)]
    return f"({' AND '.join(pairs)})"


def _unreadable(text: str, position: int) -> QueryError:
    character = text[position]
    if character in "'\"":
        return QueryError(f"the text that begins at {at(text, position)} does not end")
    return QueryError(
        f"{character!r} at {at(text, position)} has no meaning in a condition",
        hint="text stands in 'single quotes', odd names in \"double quotes\"",
    )
