"""Find secrets and personal data in texts, and put the same placeholder wherever the same value stands."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from trajkit.curate.redact_shape import KINDS, SHAPES, TELLING, VALUE, Shape, kind_of

_OPEN, _SHUT = "\x02", "\x03"
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORD = re.compile(r"[\w.+/=~-]*")
_OVERLAP = 48


class Span(NamedTuple):
    """A value in a text."""

    kind: str
    """What it is."""
    start: int
    """Where it begins."""
    end: int
    """Where it has ended."""


class Finder:
    """Knows what to look for.

    Args:
        own: The user's patterns by the names of their kinds; the group `value` of one, else its first, else
            the whole match is what is found.
        skip: Kinds that are not looked for.
    """

    def __init__(self, own: Mapping[str, re.Pattern[str]] | None = None, skip: Iterable[str] = ()) -> None:
        self._own = dict(own or {})
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
        """For each text of a column, or JSON as it is written: may it hold anything? Null for null."""
        if self._own:  # a pattern of the user's is asked of every text
            return pc.is_valid(texts)
        # a character that JSON has in another spelling could hide what is looked for
        return pc.match_substring_regex(texts, rf"{self._union}|\\u00[2-7]|\\/")

    def find(self, texts: Iterable[str]) -> dict[str, list[Span]]:
        """What is in these texts, in order; a text with nothing in it is left out."""
        readable: list[str] = []
        odd: list[str] = []
        for text in texts:
            (readable if _is_plain(text) else odd).append(text)
        found = {text: self.spans(text, [(0, len(text))]) for text in odd}
        column = pa.array(readable, pa.large_string())
        hit = (
            [True] * len(readable) if self._own else pc.match_substring_regex(column, self._union).to_pylist()
        )
        chosen = list(itertools.compress(readable, hit))
        marked = pc.replace_substring_regex(
            pa.array(chosen, pa.large_string()), self._union, f"{_OPEN}\\0{_SHUT}"
        )
        for text, mark in zip(chosen, marked.to_pylist(), strict=True):
            found[text] = self.spans(text, list(_marks(str(mark))))
        return {text: spans for text, spans in found.items() if spans}

    def spans(self, text: str, candidates: Iterable[tuple[int, int]]) -> list[Span]:
        """What is in a text near these places, in order and without overlap."""
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
                if end > start and not any(low <= start and end <= high for low, high in done):
                    seen[place - len(self._own), start, end] = Span(kind, start, end)
        return _apart(seen[key] for key in sorted(seen)) if seen else []

    def _held(self, shape: Shape, text: str, low: int, high: int) -> Iterator[Span]:
        for found in shape.pattern.finditer(text, low, high):
            start, end = found.span(VALUE if VALUE in shape.pattern.groupindex else 0)
            if start == end or not shape.holds(found):
                continue
            kind = shape.kind or kind_of(found[0])
            if kind not in self._skip:
                yield Span(kind, start, end)


class Placeholders:
    """What stands in the place of each value: the same for the same, as long as this lives.

    Args:
        taken: The highest number that is there already, by the word of the kind.
    """

    def __init__(self, taken: Mapping[str, int] | None = None) -> None:
        self._numbers = dict(taken or {})
        self._known: dict[tuple[str, str], str] = {}

    def of(self, kind: str, value: str) -> str:
        """The placeholder of a value: `[EMAIL_1]`, numbered in the order in which they are asked for."""
        if (kind, value) not in self._known:
            word = word_of(kind)
            self._numbers[word] = self._numbers.get(word, 0) + 1
            self._known[kind, value] = f"[{word}_{self._numbers[word]}]"
        return self._known[kind, value]


def word_of(kind: str) -> str:
    """A kind as placeholders have it: `github-token` is GITHUB_TOKEN."""
    return re.sub(r"[^A-Z0-9]+", "_", kind.upper()).strip("_")


class Part(NamedTuple):
    """A text in which values are looked for."""

    text: str
    """As it is read."""
    label: str
    """The name before it, where that tells what it is, and a colon; else empty."""
    start: int
    """Where it stands in what it is a part of."""
    end: int
    """Where it has ended there."""
    is_json: bool
    """Whether it stands there as a text of JSON, in quotes."""


def parts(text: str, *, is_json: bool, is_fixed: Callable[[str, str], bool] | None = None) -> Iterator[Part]:
    """The texts of a text: of JSON every text in it, else itself.

    Args:
        text: As it is written.
        is_json: Whether it is JSON for sure; else it is asked.
        is_fixed: Of the texts of an object with the name before it, those that must stay as they are; of a
            name itself, with an empty name before it.
    """
    if not is_json and not _is_json(text):
        yield Part(text, "", 0, len(text), is_json=False)
        return
    label, position = "", text.find('"')
    while position >= 0:
        value, end = scanstring(text, position + 1, False)
        is_name = _AFTER.match(text, end) is not None
        if is_fixed is None or not is_fixed(value, "" if is_name else label):
            telling = f"{label}: " if label and not is_name and TELLING.search(label) else ""
            yield Part(value, telling, position, end, is_json=True)
        label = value if is_name else label
        position = text.find('"', end)


_AFTER = re.compile(r"\s*:")


def replaced(
    text: str,
    found: Mapping[str, list[Span]],
    placeholders: Placeholders,
    *,
    is_json: bool,
    is_fixed: Callable[[str, str], bool] | None = None,
    on_found: Callable[[str, str], None] = lambda kind, value: None,
) -> str:
    """A text with placeholders. JSON stays JSON: numbers, order and spaces are as they were.

    Args:
        text: As it is written.
        found: What `Finder.find` found in its parts and in theirs, each with its label.
        placeholders: What stands in the place of a value.
        is_json: Whether it is JSON for sure; else it is asked.
        is_fixed: As `parts` takes it.
        on_found: Told the kind of each value, and the value.
    """
    pieces, last = [], 0
    for part in parts(text, is_json=is_json, is_fixed=is_fixed):
        if part.is_json and _is_json(part.text):
            new = replaced(part.text, found, placeholders, is_json=True, on_found=on_found)
        else:
            new = _filled(part, found.get(part.label + part.text, ()), placeholders, on_found)
        if new == part.text:
            continue
        pieces += [text[last : part.start], _written(new) if part.is_json else new]
        last = part.end
    return "".join([*pieces, text[last:]]) if pieces else text


def leaves(text: str, *, is_json: bool, is_fixed: Callable[[str, str], bool] | None = None) -> Iterator[str]:
    """The texts that `replaced` wants to be looked at, with their labels; those of JSON in texts too."""
    for part in parts(text, is_json=is_json, is_fixed=is_fixed):
        if part.is_json and _is_json(part.text):
            yield from leaves(part.text, is_json=True)
        else:
            yield part.label + part.text


def _filled(
    part: Part, spans: Iterable[Span], placeholders: Placeholders, on_found: Callable[[str, str], None]
) -> str:
    pieces, last, text = [], 0, part.text
    for span in spans:
        start, end = span.start - len(part.label), span.end - len(part.label)
        if start < 0:
            continue
        on_found(span.kind, text[start:end])
        pieces += [text[last:start], placeholders.of(span.kind, text[start:end])]
        last = end
    return "".join([*pieces, text[last:]]) if pieces else text


def _written(text: str) -> str:
    """A text in JSON; half of a surrogate pair can only be written as an escape."""
    return json.dumps(text, ensure_ascii=_has_surrogate(text))


def _is_json(text: str) -> bool:
    """Whether a text is an object or a list in JSON, with texts in it."""
    if text[:1] not in ("{", "[", " ", "\n", "\t", "\r") or '"' not in text:
        return False
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and _SURROGATE.search(text) is not None


def _is_plain(text: str) -> bool:
    """Whether Arrow can hold it, and the marks are free."""
    return _OPEN not in text and _SHUT not in text and not _has_surrogate(text)


def _marks(marked: str) -> Iterator[tuple[int, int]]:
    """Where the marked places are, in the text without marks."""
    first, *rest = marked.split(_OPEN)
    position = len(first)
    for piece in rest:
        length = piece.index(_SHUT)
        yield position, position + length
        position += len(piece) - 1


def _regions(text: str, candidates: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The candidates with the rest of their words; what is near to each other is one region, read once."""
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
    """Those that do not touch one that comes before them here, in the order of the text."""
    kept: list[Span] = []
    for span in spans:
        if all(span.end <= other.start or span.start >= other.end for other in kept):
            kept.append(span)
    return sorted(kept, key=lambda span: span.start)
