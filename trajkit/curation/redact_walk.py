"""The texts of a text, also of JSON inside JSON, and the same text with placeholders in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import NamedTuple

from trajkit.curation.redact_placeholder import Placeholders
from trajkit.curation.redact_shape import TELLING
from trajkit.curation.redact_text import Span, has_surrogate


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
    return json.dumps(text, ensure_ascii=has_surrogate(text))


def _is_json(text: str) -> bool:
    """Whether a text is an object or a list in JSON, with texts in it."""
    if text[:1] not in ("{", "[", " ", "\n", "\t", "\r") or '"' not in text:
        return False
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False
