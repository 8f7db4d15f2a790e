"""Put the spans of traces together to sessions, in bounded memory.

A row is a span as JSON: its times are nanoseconds since 1970. Rows may come in any order: they wait on disk
by trace, then by session, since a session may have many traces and a trace several sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from trajkit.formats.reading.document import BadDocument, shown
from trajkit.schema.base import JsonObject
from trajkit.sources.calls import Gathered, Session, found_by, known_types
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.otel.otlp import Row
from trajkit.sources.spans.session import by_session, session_of
from trajkit.sources.spans.span import Span, SpanEvent

NO_CALLS = "no call of a model"
"""Why a trace or session is left out."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def found_in(rows: Iterable[Row | Found | Unread], source: str) -> Iterator[Found | Unread]:
    """Yield the sessions of spans; first what is among the rows and is none.

    Args:
        rows: Spans and events in any order.
        source: Name of the source.
    """
    with Gathered() as traces, Gathered() as sessions:
        for row in rows:
            if isinstance(row, Row):
                traces.add(row.trace_id, row.value, part=row.part)
            else:
                yield row
        for trace_id, parts in traces.groups():
            values = _with_events(parts)
            try:
                with known_types():
                    grouped = by_session([span_of(trace_id, one) for one in values.values()])
            except BadDocument as error:
                yield Found(trace_id, problem=error.problem)
                continue
            for session_id, spans in grouped.items():
                part = "trace" if session_id is None else "session"
                for span in spans:
                    name = trace_id if session_id is None else session_id
                    sessions.add(f"{part} {name}", [trace_id, values[span.span_id]], part=part)
        for key, parts in sessions.groups():
            ((part, grown),) = parts.items()
            name = key.removeprefix(f"{part} ")
            make = partial(_session, name, grown, source, is_named=part == "session")
            yield found_by(make, name, empty=NO_CALLS)


def _session(name: str, values: list[Any], source: str, *, is_named: bool) -> Session:
    spans = [span_of(trace_id, value) for trace_id, value in values]
    return session_of(name, spans, source, is_named=is_named)


def _with_events(parts: dict[str, list[Any]]) -> dict[str, JsonObject]:
    """The spans of a trace by id, with the events that came by themselves; what came twice is there once."""
    values: dict[str, Any] = {one["span"]: one for one in parts.get("span", ())}
    for number, one in enumerate(parts.get("event", ())):
        event = [one["name"], one["at"], one["attributes"]]
        if one["span"] in values:
            if event not in values[one["span"]]["events"]:
                values[one["span"]]["events"].append(event)
        else:  # of a span that is not there
            name = f"event-{number}"
            values[name] = {**one, "span": name, "parent": one["span"], "begin": one["at"], "events": [event]}
    return values


def span_of(trace_id: str, value: JsonObject) -> Span:
    """Return the span of a row.

    Raises:
        BadDocument: A time is out of range.
    """
    row: dict[str, Any] = value
    return Span(
        trace_id=trace_id,
        span_id=row["span"],
        parent_id=row["parent"],
        name=row["name"],
        started_at=_at(row["begin"]),
        ended_at=_at(row.get("end")),
        attributes=row["attributes"],
        events=[SpanEvent(name, _at(at), attributes) for name, at, attributes in row["events"]],
        is_error=row.get("is_error", False),
        status=row.get("status", ""),
        resource=row["resource"],
        n_dropped=row.get("n_dropped", 0),
    )


def _at(ns: int | None) -> datetime | None:
    try:
        return None if ns is None else _EPOCH + timedelta(microseconds=ns // 1000)
    except OverflowError:
        raise BadDocument("a time that is out of range", "the time of a span", shown(ns)) from None
