"""Read sessions from Phoenix: from its SQLite database, or from the API of a running server.

`?project=NAME` after a URL reads one project; without it all are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from trajkit.errors import RequestError
from trajkit.formats.reading.document import known_time_at, objects_at, part_of, text_at
from trajkit.sources.calls import Score, Session, found_by
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.phoenix import api, tables
from trajkit.sources.phoenix.tables import Group
from trajkit.sources.source import Source, kept, lost
from trajkit.sources.spans.session import session_of
from trajkit.sources.spans.span import Span, SpanEvent, flat, number_of, text_of
from trajkit.sources.sqlite_file import has_tables, options_of, path_of
from trajkit.sources.wish import Wish

DOCUMENT_SCORES = "scores of retrieved documents, which are left out"
"""Sessions with annotations of documents, which belong neither to a call nor to the session."""


def read(place: str, wish: Wish) -> Iterator[Found | Unread]:
    """Yield the sessions of a database or of a server."""
    options = options_of(place)
    project = options.pop("project", None)
    if options:
        raise RequestError(f"unknown option {', '.join(options)}", hint="known: project")
    of_place = api.groups_of if path_of(place) is None else tables.groups_of
    for group in of_place(place, project):
        if wish.since is not None and group.ended_at is not None and group.ended_at < wish.since:
            yield Found(group.name, aside="before --since")
        else:
            yield found_by(partial(_session, group), f"{group.project}/{group.name}")


def _session(group: Group) -> Session:
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


SOURCE = Source(
    name="phoenix",
    about="sessions of Phoenix's SQLite database, or of its server",
    read=read,
    recognises=lambda place: has_tables(place, *tables.TABLES),
    fidelity={
        "session": kept("`session.id`, else each trace is an episode"),
        "sub-agents": kept("an agent's span in that of another"),
        "tool results": kept("those that a later prompt has"),
        "thoughts": kept("where the instrumentation logs them"),
        "cost": kept("from the database, where Phoenix knows the model's price"),
        "finish reason": kept("since `llm.finish_reason`"),
        "metrics": kept("annotations with a score, except on documents"),
        "comments": kept("labels without a score, explanations and notes"),
        **lost("task and seed", "token ids"),
    },
)
