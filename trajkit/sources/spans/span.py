"""A span of a trace, from any system."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

EVALUATION = "gen_ai.evaluation.result"
"""Name of the event of a score."""


class SpanEvent(NamedTuple):
    """Something that happened in a span."""

    name: str
    at: datetime | None
    attributes: Mapping[str, Any]
    """Those of a log event also have its body."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """One piece of work in a trace."""

    trace_id: str
    span_id: str
    parent_id: str | None = None
    """The span above it; None for the root."""
    name: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Texts, numbers, booleans or lists of them, by dotted name; see `flat`."""
    events: Sequence[SpanEvent] = ()
    is_error: bool = False
    """Whether its status is an error."""
    status: str = ""
    """The message of the status."""
    resource: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of its program."""
    n_dropped: int = 0
    """Number of attributes or events that its SDK dropped."""

    def first(self, *names: str) -> Any:
        """Return the value of the first of these attributes that the span has; None without any."""
        return next((self.attributes[name] for name in names if self.attributes.get(name) is not None), None)


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested attributes with dotted names; lists of objects become numbers in the names."""
    found: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, list) and item and all(isinstance(one, dict) for one in item):
            item = {str(number): one for number, one in enumerate(item)}
        if isinstance(item, dict) and item:
            found |= flat(item, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = item
    return found


def parsed(value: Any) -> Any:
    """Return the value of a JSON text; anything else as it is."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def listed(value: Any) -> list[Any]:
    """Return a list, even if it was logged as JSON or as one text; empty for None."""
    if isinstance(value, str) and value.startswith("["):
        value = parsed(value)
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def number_of(value: Any) -> float | None:
    """Return a number, even if it was logged as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def count_of(value: Any) -> int | None:
    """Return a whole number, even if it was logged as text; None for anything else."""
    number = number_of(value)
    return None if number is None else int(number)


def text_of(value: Any) -> str | None:
    """Return a value as text; None for None and for an empty text."""
    return None if value is None or value == "" else str(value)
