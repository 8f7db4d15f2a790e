"""Rewrite a template so that the Python engine renders it as the gateway's engine does.

The Python engine keeps a map that a template writes out in the order of its text; the gateway's sorts it by
key. The difference shows when a template prints the map or iterates over it.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from trajkit.errors import DataError

_OPENING = re.compile(r"\{\{|\{%|\{#")
_RAW = re.compile(r"\{%[-+]?\s*raw\s*[-+]?%\}")
_END_RAW = re.compile(r"\{%[-+]?\s*endraw\s*[-+]?%\}")
_CLOSING = {"{{": re.compile(r"[-+]?\}\}"), "{%": re.compile(r"[-+]?%\}")}
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_DICT = re.compile(r"\bdict\s*\(")
_TO_JSON = re.compile(r"\|\s*tojson\b(\s*\()?")
_KEYWORD = re.compile(r"\s*([^\W\d]\w*)\s*=(?!=)")
_NUMBER = re.compile(r"-?\d+")
SPELLED = "trajkit_spelled"
"""A filter after every `tojson`, which formats numbers as the gateway does."""

_BRACKETS = {"(": ")", "[": "]", "{": "}"}


class _Part(NamedTuple):
    """An item between two commas of a map or a call."""

    text: str
    colon: int | None
    """Position of its first colon outside brackets."""


def ready(source: str) -> str:
    """Rewrite a template: sort the keys of its map literals, and add `SPELLED` after every `tojson`.

    Raises:
        DataError: A map has several keys and not all of them are written out.
    """
    done: list[str] = []
    at = 0
    while match := _OPENING.search(source, at):
        done.append(source[at : match.start()])
        at = _skip(source, match)
        if at > match.start():  # a comment, or verbatim text
            done.append(source[match.start() : at])
            continue
        inside = _Reader(source, match.end(), _CLOSING[match.group()])
        done += [match.group(), inside.read()]
        at = inside.at
    return "".join([*done, source[at:]])


def _skip(source: str, opening: re.Match[str]) -> int:
    """The end of a comment or a raw block that begins here; else where it begins."""
    start = opening.start()
    if opening.group() == "{#":
        end = source.find("#}", start)
        return len(source) if end < 0 else end + 2
    if raw := _RAW.match(source, start):
        closing = _END_RAW.search(source, raw.end())
        return closing.end() if closing else len(source)
    return start


class _Reader:
    """Reads an expression, up to its closing characters."""

    def __init__(self, source: str, at: int, closing: re.Pattern[str]) -> None:
        self._source = source
        self._closing = closing
        self.at = at

    def read(self) -> str:
        """Copy up to the end of the tag, with sorted maps; the closing characters are copied later."""
        done: list[str] = []
        while self.at < len(self._source) and not self._closing.match(self._source, self.at):
            done.append(self._piece())
        return "".join(done)

    def _piece(self) -> str:
        """A string, something in brackets, or a character."""
        if string := _STRING.match(self._source, self.at):
            self.at = string.end()
            return string.group()
        if filtered := _TO_JSON.match(self._source, self.at):
            self.at = filtered.end()
            given = f"({','.join(part.text for part in self._parts(')'))})" if filtered[1] else ""
            return f"|tojson{given}|{SPELLED}"
        if call := self._call():
            self.at = call.end()
            return call.group() + _sorted_call(self._parts(")")) + ")"
        character = self._source[self.at]
        self.at += 1
        if character == "{":
            return "{" + _sorted_map(self._parts("}")) + "}"
        if character in _BRACKETS:
            closing = _BRACKETS[character]
            return character + ",".join(part.text for part in self._parts(closing)) + closing
        return character

    def _call(self) -> re.Match[str] | None:
        """Match `dict(`, if it is a whole name here."""
        before = self._source[self.at - 1 : self.at]
        return (
            None if before == "." or before.isalnum() or before == "_" else _DICT.match(self._source, self.at)
        )

    def _parts(self, closing: str) -> list[_Part]:
        """The content of brackets, split at its commas."""
        parts: list[_Part] = []
        text, colon = "", None
        while self.at < len(self._source) and self._source[self.at] != closing:
            if self._source[self.at] == ",":
                parts.append(_Part(text, colon))
                text, colon, self.at = "", None, self.at + 1
                continue
            if self._source[self.at] == ":" and colon is None:
                colon = len(text)
            text += self._piece()
        self.at += 1
        return [*parts, _Part(text, colon)]


def _sorted_map(parts: list[_Part]) -> str:
    entries = [part for part in parts if part.text.strip()]
    if len(entries) > 1:
        entries.sort(key=lambda part: _key(part.text[: part.colon].strip()))
    return ",".join(part.text for part in entries)


def _key(text: str) -> tuple[int, int, str]:
    """The sort key of a literal key: numbers first."""
    if _STRING.fullmatch(text):
        return 1, 0, text[1:-1] if "\\" not in text else str(ast.literal_eval(text))
    if _NUMBER.fullmatch(text):
        return 0, int(text), ""
    raise DataError(f"a template writes out a map of several keys, one of which ({text}) is computed")


def _sorted_call(parts: list[_Part]) -> str:
    """The arguments of `dict(…)`: its keywords are keys."""
    keywords = [part for part in parts if _KEYWORD.match(part.text)]
    if not keywords or len(parts) == 1:
        return ",".join(part.text for part in parts)
    if len(keywords) < len([part for part in parts if part.text.strip()]):
        raise DataError("a template adds keys to a map with dict(…)")
    keywords.sort(key=lambda part: _KEYWORD.match(part.text)[1])  # type: ignore[index]
    return ",".join(part.text for part in keywords)
