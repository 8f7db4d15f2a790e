"""A span of a trace, whatever system logged it."""

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
    """Those of an event of a log have its body, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """One piece of work in a trace."""

    trace_id: str
    span_id: str
    parent_id: str | None = None
    """The span that it is a part of; None for the root."""
    name: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """By dotted name a text, number, boolean or list of them; see `flat`."""
    events: Sequence[SpanEvent] = ()
    is_error: bool = False
    """Whether its status is that of an error."""
    status: str = ""
    """What the status says."""
    resource: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the program that it is of."""
    n_dropped: int = 0
    """How many attributes or events its SDK dropped."""

    def first(self, *names: str) -> Any:
        """The value of the first of these attributes that the span has; None without any."""
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
    """The value of a text in JSON; anything else as it is."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def listed(value: Any) -> list[Any]:
    """A list, also where it was logged as JSON or as one text; empty for None."""
    if isinstance(value, str) and value.startswith("["):
        value = parsed(value)
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def number_of(value: Any) -> float | None:
    """A number, also where it was logged as text; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def count_of(value: Any) -> int | None:
    """A whole number, also where it was logged as text; None for what is none."""
    number = number_of(value)
    return None if number is None else int(number)


def text_of(value: Any) -> str | None:
    """A value as text; None for None and for an empty text."""
    return None if value is None or value == "" else str(value)
