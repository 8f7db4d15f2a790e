"""Find secrets and personal data in texts, many at a time, and replace them by placeholders."""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from trajkit.curation.redaction.shape import KINDS, SHAPES, VALUE, Shape, kind_of

_OPEN, _SHUT = "\x02", "\x03"
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORD = re.compile(r"[\w.+/=~-]*")
_OVERLAP = 48
PLACEHOLDER = r"\[[A-Z][A-Z0-9_]*_[0-9]{1,18}\]"
"""Pattern of a placeholder, for RE2 and re alike."""
MET = re.compile(PLACEHOLDER, re.ASCII)
"""`PLACEHOLDER`, compiled."""


class Span(NamedTuple):
    """A value in a text."""

    kind: str
    """Kind of the value."""
    start: int
    end: int
    """The position after its last character."""


class Finder:
    """Finds values of all kinds.

    Args:
        own: The user's patterns by kind. The value is the group `value`, else the first group, else the whole
            match.
        skip: Kinds that are not looked for.
        reader: Finds values without a fixed pattern, as `PiiReader` does; None for none.
    """

    def __init__(
        self,
        own: Mapping[str, re.Pattern[str]] | None = None,
        skip: Iterable[str] = (),
        *,
        reader: Callable[[str], Iterable[Span]] | None = None,
    ) -> None:
        self._own = dict(own or {})
        self._reader = reader
        self._asks_all = bool(self._own) or reader is not None
        self._skip = frozenset(skip)
        self._shapes = [
            (place, shape, re.compile(shape.candidate))
            for place, shape in enumerate(SHAPES)
            if not shape.kind or shape.kind not in self._skip
        ]
        words = sorted({word_of(kind) for kind in (*KINDS, *self._own)})
        self._done = re.compile(rf"\[(?:{'|'.join(words)})_[0-9]+\]")
        self._union = "|".join(f"(?:{shape.candidate})" for _, shape, _ in self._shapes)

    def may_hold(self, texts: Any) -> Any:
        """Whether each text of a column may contain a value; it may be JSON. Null for null."""
        if self._asks_all:  # a user's pattern or a reader must see every text
            return pc.is_valid(texts)
        # a character that JSON escapes could hide a value
        return pc.match_substring_regex(texts, rf"{self._union}|\\u00[2-7]|\\/")

    def find(self, texts: Iterable[str]) -> dict[str, list[Span]]:
        """Return the values in these texts, in order; texts without a value are left out."""
        readable: list[str] = []
        odd: list[str] = []
        for text in texts:
            (readable if _is_plain(text) else odd).append(text)
        found = {text: self.spans(text, [(0, len(text))]) for text in odd}
        column = pa.array(readable, pa.large_string())
        hit = (
            [True] * len(readable)
            if self._asks_all
            else pc.match_substring_regex(column, self._union).to_pylist()
        )
        chosen = list(itertools.compress(readable, hit))
        marked = pc.replace_substring_regex(
            pa.array(chosen, pa.large_string()), self._union, f"{_OPEN}\\0{_SHUT}"
        )
        for text, mark in zip(chosen, marked.to_pylist(), strict=True):
            found[text] = self.spans(text, list(_marks(str(mark))))
        return {text: spans for text, spans in found.items() if spans}

    def spans(self, text: str, candidates: Iterable[tuple[int, int]]) -> list[Span]:
        """Return the values in a text near these places, in order and without overlap."""
        seen: dict[tuple[int, int, int], Span] = {}
        for start, end in _regions(text, candidates):
            for place, shape, near in self._shapes:
                if near.search(text, max(0, start - 2), end + _OVERLAP):
                    for span in self._held(shape, text, max(0, start - shape.reach), end + shape.reach):
                        seen[place, span.start, span.end] = span
        done = [found.span() for found in self._done.finditer(text)] if self._own else []
        for place, (kind, pattern) in enumerate(self._own.items()):
            for found in pattern.finditer(text):
                start, end = found.span(VALUE if VALUE in pattern.groupindex else min(1, pattern.groups))
                around = bisect_left(done, end, key=lambda span: span[1])
                if end > start and (around == len(done) or start < done[around][0]):
                    seen[place - len(self._own), start, end] = Span(kind, start, end)
        read = self._read(text) if self._reader is not None else []
        return _apart([*(seen[key] for key in sorted(seen)), *read]) if seen or read else []

    def _read(self, text: str) -> list[Span]:
        """Return the values that the reader finds outside placeholders."""
        assert self._reader is not None
        done = [found.span() for found in MET.finditer(text)]
        return [
            span
            for span in self._reader(text)
            if all(span.end <= low or span.start >= high for low, high in done)
        ]

    def _held(self, shape: Shape, text: str, low: int, high: int) -> Iterator[Span]:
        for found in shape.pattern.finditer(text, low, high):
            start, end = found.span(VALUE if VALUE in shape.pattern.groupindex else 0)
            if start == end or not shape.holds(found):
                continue
            kind = shape.kind or kind_of(found[0])
            if kind not in self._skip:
                yield Span(kind, start, end)


def has_surrogate(text: str) -> bool:
    """Whether a text contains half of a surrogate pair, which Arrow cannot hold."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def _is_plain(text: str) -> bool:
    """Whether Arrow can hold a text that does not contain the marks."""
    return _OPEN not in text and _SHUT not in text and not has_surrogate(text)


def _marks(marked: str) -> Iterator[tuple[int, int]]:
    """Yield the marked places, as positions in the text without marks."""
    first, *rest = marked.split(_OPEN)
    position = len(first)
    for piece in rest:
        length = piece.index(_SHUT)
        yield position, position + length
        position += len(piece) - 1


def _regions(text: str, candidates: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the candidates with the rest of their words; neighbours are joined to one region."""
    low = high = -1
    for start, end in candidates:
        if low >= 0 and start <= high + _OVERLAP:
            high = max(high, end if end <= high else _WORD.match(text, end).end())  # type: ignore[union-attr]
            continue
        if low >= 0:
            yield low, high
        low, high = start, _WORD.match(text, end).end()  # type: ignore[union-attr]
    if low >= 0:
        yield low, high


def _apart(spans: Iterable[Span]) -> list[Span]:
    """Return the spans that overlap no earlier one, in the order of the text."""
    kept: list[Span] = []
    for span in spans:
        place = bisect_left(kept, span.start, key=lambda other: other.end - 1)
        if place == len(kept) or span.end <= kept[place].start:
            kept.insert(place, span)
    return kept


class Placeholders:
    """Assigns placeholders: equal values get the same one.

    Args:
        numbers: Numbers of values, by kind and `key_of`; a new value gets the next one.
    """

    def __init__(self, numbers: Mapping[tuple[str, bytes], int] | None = None) -> None:
        self.numbers = dict(numbers or {})
        """Numbers of all values so far."""
        self._last: dict[str, int] = {}
        for (kind, _), number in self.numbers.items():
            word = word_of(kind)
            self._last[word] = max(self._last.get(word, 0), number)

    def of(self, kind: str, value: str) -> str:
        """Return the placeholder of a value, such as `[EMAIL_1]`, numbered in the order of the calls."""
        word, key = word_of(kind), (kind, key_of(value))
        if key not in self.numbers:
            self.numbers[key] = self._last[word] = self._last.get(word, 0) + 1
        return f"[{word}_{self.numbers[key]}]"


def key_of(value: str) -> bytes:
    """Return a hash that replaces a value where the value itself must not be kept."""
    return hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@functools.cache
def word_of(kind: str) -> str:
    """Return the word of a kind in placeholders: `github-token` is GITHUB_TOKEN."""
    return re.sub(r"[^A-Z0-9]+", "_", kind.upper()).strip("_")
