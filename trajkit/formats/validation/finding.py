"""A flaw of a training file: its place, the wrong value, and how to correct it."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, NamedTuple

from trajkit.schema import Model

_MOST_SHOWN = 60
_KINDS = {
    "null": "null",
    "boolean": "a boolean",
    "number": "a number",
    "string": "a text",
    "array": "a list",
    "object": "an object",
}


class Severity(StrEnum):
    """Consequence of a finding."""

    ERROR = "error"
    """The target refuses the file, or the job fails."""
    WARNING = "warning"
    """The target accepts the file, but learns something else than the row says."""


class Flaw(NamedTuple):
    """A finding in one row, before it has a line number."""

    kind: str
    """What is wrong, in the same words for the same rule."""
    path: str
    """JSON path in the row, such as `$.messages[2].content`; `$` is the row itself."""
    hint: str
    """How to correct it."""
    value: str = ""
    """The wrong value, shortened; empty if there is none."""
    severity: Severity = Severity.ERROR


class Finding(Model):
    """A flaw with its line."""

    line: int | None
    """Line of the file, from 1; None for the file as a whole."""
    path: str
    """JSON path in the row; empty for the file as a whole."""
    kind: str
    """What is wrong."""
    value: str
    """The wrong value, shortened."""
    hint: str
    """How to correct it."""
    severity: Severity
    """Whether the target refuses the file for it."""

    def __str__(self) -> str:
        place = "file" if self.line is None else f"line {self.line}"
        where = f"{place} {self.path}".strip()
        return f"{where}: {self.kind}{f': {self.value}' if self.value else ''}"


def shown(value: Any) -> str:
    """Write a value as JSON, shortened to fit on a line of a terminal."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


def json_type(value: Any) -> str:
    """Return the JSON Schema type of a value; every number is a `number`."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def kind_of(value: Any) -> str:
    """Return the name of a value's JSON type for a sentence."""
    return _KINDS[json_type(value)]


def wrong_type(path: str, wanted: str, value: Any) -> Flaw:
    """Return the flaw of a value of the wrong type."""
    return Flaw(f"{wanted} is expected, not {kind_of(value)}", path, f"make it {wanted}", shown(value))
