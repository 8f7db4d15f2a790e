"""Make sessions of Phoenix's spans and annotations, which the database and the API spell alike."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from trajkit.formats.reading.document import BadDocument, known_time_at, objects_at, part_of, text_at
from trajkit.sources.calls import Score, Session
from trajkit.sources.spans.session import session_of
from trajkit.sources.spans.span import Span, SpanEvent, flat, number_of, text_of

DOCUMENT_SCORES = "scores of retrieved documents, which are left out"
"""Sessions with annotations of documents, which are neither of a call nor of the session."""


class Group(NamedTuple):
    """The traces of a session, or the only trace that is in none."""

    name: str
    """The session id, or the id of the trace."""
    is_session: bool
    project: str
    """Name of its project."""
    ended_at: datetime | None
    """When its last trace ended; None where that is not known."""
    spans: Iterator[Mapping[str, Any]]
    """Read as they are taken; what is wrong with one is a `BadDocument`."""
    annotations: Iterator[Mapping[str, Any]]
    """Those of the session, its traces and its spans; read after the spans."""
    has_document_scores: bool = False


def session_of_group(group: Group) -> Session:
    """Return the session of a group.

    Raises:
        BadDocument: A span, an annotation or a message is not valid.
    """
    rows = list(group.spans)
    session = session_of(group.name, [_span(row) for row in rows], "phoenix", is_named=group.is_session)
    costs = {row["span_id"]: cost for row in rows if (cost := number_of(row.get("total_cost"))) is not None}
    calls = [
        replace(call, cost_usd=costs[call.call_id])
        if call.cost_usd is None and call.call_id in costs
        else call
        for call in session.calls
    ]
    ids = {call.call_id for call in calls}
    return replace(
        session,
        calls=calls,
        scores=[*session.scores, *(score for one in group.annotations for score in _scores(one, ids))],
        origin={"project": group.project, **session.origin},
        missing=(*session.missing, *((DOCUMENT_SCORES,) if group.has_document_scores else ())),
    )


def _span(row: Mapping[str, Any]) -> Span:
    where = f"spans {row.get('span_id')}"
    kind = row.get("span_kind")
    attributes = flat(part_of(row, "attributes", where))
    if isinstance(kind, str) and kind != "UNKNOWN":
        attributes.setdefault("openinference.span.kind", kind)
    return Span(
        trace_id=text_at(row.get("trace_id"), f"{where}.trace_id"),
        span_id=text_at(row.get("span_id"), "spans.span_id"),
        parent_id=row.get("parent_id"),
        name=text_of(row.get("name")) or "",
        started_at=known_time_at(row.get("start_time"), f"{where}.start_time"),
        ended_at=known_time_at(row.get("end_time"), f"{where}.end_time"),
        attributes=attributes,
        events=[
            SpanEvent(
                str(one.get("name")),
                known_time_at(one["timestamp"], f"{where}.events") if one.get("timestamp") else None,
                part_of(one, "attributes", f"{where}.events"),
            )
            for one in objects_at(row.get("events"), f"{where}.events")
        ],
        is_error=row.get("status_code") == "ERROR",
        status=str(row.get("status_message") or ""),
    )


def latest(times: Iterable[Any]) -> datetime | None:
    """Return the latest of some times; None where one is not valid."""
    try:
        return max(known_time_at(one, "") for one in times)
    except BadDocument:
        return None


def number_of_id(global_id: Any) -> str:
    """Return the id of the API, `KIND:NUMBER` in base64, as text; the database has kind and number."""
    try:
        return base64.b64decode(text_at(global_id, "id"), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return str(global_id)


def _scores(one: Mapping[str, Any], call_ids: set[str]) -> Iterator[Score]:
    """Yield the scores of an annotation: its number, else its label; and its explanation."""
    name, score_id = text_at(one.get("name"), "annotation.name"), str(one["id"])
    number, label = number_of(one.get("score")), text_of(one.get("label"))
    given = {
        key: one.get(key)
        for key in ("annotator_kind", "identifier", "source", "user_id", "span_id", "trace_id")
    }
    given |= part_of(one, "metadata", score_id)
    tags = {key: str(value) for key, value in given.items() if value not in (None, "")}
    values: Sequence[float | str | None] = (
        label if number is None else number,
        text_of(one.get("explanation")),
    )
    if number is not None and label is not None:
        tags["label"] = label
    for suffix, value in zip(("", "-why"), values, strict=True):
        if value is not None:
            yield Score(
                name=name,
                value=value,
                score_id=f"{score_id}{suffix}",
                call_id=one.get("span_id") if one.get("span_id") in call_ids else None,
                created_at=known_time_at(
                    one.get("updated_at") or one.get("created_at"), f"{score_id}.updated_at"
                ),
                tags=tags,
            )
