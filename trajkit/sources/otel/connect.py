"""Read OpenTelemetry: files of OTLP, folders of them, and the ClickHouse table of the collector.

Spans may come in any order: they wait on disk by trace, then by session, since a session may have many traces
and a trace several sessions.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trajkit.errors import RequestError
from trajkit.formats.reading.document import BadDocument, shown
from trajkit.sources.calls import Gathered, Session, found_by, known_types
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.files.texts import json_of, lines_of, opened, read_whole, value_of
from trajkit.sources.files.walk import files_under, shown_path
from trajkit.sources.otel.otlp import METRICS, Row, is_request, requests_of_protobuf, rows_of
from trajkit.sources.otel.table import rows_of_table
from trajkit.sources.source import Source, changed, kept, lost
from trajkit.sources.spans.session import by_session, session_of
from trajkit.sources.spans.span import Span, SpanEvent
from trajkit.sources.wish import Wish

NOT_WHOLE = "an incomplete last line: it was being written"
"""Why the end of a file is left out; a collector may still write it."""
_JSON = (".json", ".jsonl", ".ndjson")
_PROTOBUF = (".pb", ".bin", ".binpb", ".proto")
_BEGINNING = re.compile(rb'(?:\xef\xbb\xbf)?\s*\[?\s*\{\s*"(?:resourceSpans|resourceLogs)"\s*:')
_MOST_LOOKED_AT = 20
NO_CALLS = "no model call"
"""Why a trace or session is left out."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(place: str, wish: Wish) -> Iterator[Found | Unread]:
    """Yield the sessions at a path or URL."""
    if "://" in place:
        yield from _found_in(rows_of_table(place, since=wish.since))
        return
    root = Path(place)
    within = root if root.is_dir() else None
    paths = files_under(root) if within else iter([root])
    rows = itertools.chain.from_iterable(_of_file(path, shown_path(path, root), within) for path in paths)
    yield from _found_in(rows)


def _of_file(path: Path, place: str, within: Path | None) -> Iterator[Row | Found | Unread]:
    suffix = path.suffix.lower()
    try:
        if suffix in _PROTOBUF:
            for number, request in enumerate(requests_of_protobuf(read_whole(path, within)), 1):
                yield from _of_request(request, f"{place}:{number}")
        elif suffix in _JSON:
            yield from _of_json(path, place, within, may_be_one=suffix == ".json")
        else:
            yield Unread(suffix)
    except BadDocument as error:
        yield Found(place, problem=error.problem)


def _of_json(
    path: Path, place: str, within: Path | None, *, may_be_one: bool
) -> Iterator[Row | Found | Unread]:
    """Yield the requests in the lines of a file, or in its one value over many lines."""
    with opened(path, within) as file:
        for line in lines_of(file):
            try:
                value = value_of(line)
            except BadDocument as error:
                if may_be_one and line.number == 1 and not line.is_last:
                    yield from _of_request(json_of(read_whole(path, within), is_last_line=True), place)
                    return
                if line.is_last and line.number > 1:
                    yield Found(f"{place}:{line.number}", aside=NOT_WHOLE)
                else:
                    yield Found(f"{place}:{line.number}", problem=error.problem)
                continue
            yield from _of_request(value, f"{place}:{line.number}")


def _of_request(value: Any, place: str) -> Iterator[Row | Found]:
    if isinstance(value, list):
        for one in value:
            yield from _of_request(one, place)
        return
    if not is_request(value):
        yield Found(place, problem=BadDocument("not an OTLP request: it has no resourceSpans").problem)
        return
    if METRICS in value:
        yield Found(place, aside="metrics of programs")
    try:
        for row in rows_of(value):
            yield Found(place, problem=row.problem) if isinstance(row, BadDocument) else row
    except BadDocument as error:
        yield Found(place, problem=error.problem)


def _found_in(rows: Iterable[Row | Found | Unread]) -> Iterator[Found | Unread]:
    """Yield the sessions of spans, after rows that are not spans."""
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
                    grouped = by_session([_span(trace_id, one) for one in values.values()])
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
            make = partial(_session, name, grown, is_named=part == "session")
            yield found_by(make, name, empty=NO_CALLS)


def _session(name: str, values: list[Any], *, is_named: bool) -> Session:
    spans = [_span(trace_id, value) for trace_id, value in values]
    return session_of(name, spans, "otel", is_named=is_named)


def _with_events(parts: dict[str, list[Any]]) -> dict[str, Any]:
    """Return the spans of a trace by id, with their separate events; duplicates are removed."""
    values: dict[str, Any] = {one["span"]: one for one in parts.get("span", ())}
    for number, one in enumerate(parts.get("event", ())):
        event = [one["name"], one["at"], one["attributes"]]
        if one["span"] in values:
            if event not in values[one["span"]]["events"]:
                values[one["span"]]["events"].append(event)
        else:  # its span is missing
            name = f"event-{number}"
            values[name] = {**one, "span": name, "parent": one["span"], "begin": one["at"], "events": [event]}
    return values


def _span(trace_id: str, row: dict[str, Any]) -> Span:
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


def _recognises(place: str) -> bool:
    """Whether a file, or one of the first files of a folder, begins like OTLP; or a URL names `otel`."""
    if "://" in place:
        parts = urlsplit(place)
        return parts.scheme == "clickhouse" and parts.path.strip("/") == "otel"
    root = Path(place)
    within = root if root.is_dir() else None
    paths = files_under(root) if within else iter([root])
    return any(
        _begins(path, within)
        for path in itertools.islice(paths, _MOST_LOOKED_AT)
        if path.suffix.lower() in _JSON
    )


def _begins(path: Path, within: Path | None) -> bool:
    try:
        with opened(path, within) as file:
            return _BEGINNING.match(file.read(256)) is not None
    except (BadDocument, OSError, RequestError):
        return False


SOURCE = Source(
    name="otel",
    about="OpenTelemetry and OpenInference: OTLP files, or the collector's table in ClickHouse",
    read=read,
    recognises=_recognises,
    fidelity={
        "session": kept("gen_ai.conversation.id or session.id, else each trace is one"),
        "sub-agents": kept("agents inside agents"),
        "prompt": kept("where the instrumentation records content"),
        "answer": kept("where the instrumentation records content"),
        "tool results": kept("those that a later prompt has"),
        "tools offered": kept("gen_ai.tool.definitions, llm.tools, llm.request.functions"),
        "images and files": changed("the address; bytes are left out"),
        "cost": kept("llm.cost.total or gen_ai.usage.cost"),
        "metrics": kept("events gen_ai.evaluation.result"),
        "comments": kept("labels and explanations of such events"),
        "tags and user": kept("tag.tags and user.id"),
        **lost("task and seed", "token ids"),
    },
)
