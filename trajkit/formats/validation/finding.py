"""One thing that is wrong with a training file: where, what stands there, and how to mend it."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, NamedTuple

from trajkit.schema import Model

_MOST_SHOWN = 60


class Severity(StrEnum):
    """What comes of it."""

    ERROR = "error"
    """The file is refused, or the job fails."""
    WARNING = "warning"
    """The file is taken, and something else is learned than the row says."""


class Flaw(NamedTuple):
    """A finding in one row, before it has a line number."""

    kind: str
    """What is wrong, the same words for the same rule."""
    path: str
    """JSON path in the row, such as `$.messages[2].content`; `$` is the row itself."""
    hint: str
    """How to mend it."""
    value: str = ""
    """What stands there, shortened; empty where nothing does."""
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
    """What stands there, shortened."""
    hint: str
    """How to mend it."""
    severity: Severity
    """Whether the file is refused for it."""

    def __str__(self) -> str:
        place = "file" if self.line is None else f"line {self.line}"
        where = f"{place} {self.path}".strip()
        return f"{where}: {self.kind}{f': {self.value}' if self.value else ''}"


def shown(value: Any) -> str:
    """A value as JSON, shortened so that a line of a terminal holds it."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


def kind_of(value: Any) -> str:
    """What JSON calls a value's type."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"


def wrong_type(path: str, wanted: str, value: Any) -> Flaw:
    """A value of another type than the rule wants."""
    return Flaw(f"{wanted} is wanted, not {kind_of(value)}", path, f"make it {wanted}", shown(value))
