"""Read rows from Langfuse's public API: by cursor, or by page where the server is older."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from trajkit._core.settings import secret_from_environment
from trajkit.errors import RequestError, ServiceError
from trajkit.formats.reading.document import time_at
from trajkit.sources.langfuse.rows import OBSERVATION, SCORE, TRACE
from trajkit.sources.web import Web, basic

_API = "/api/public"
_LIMIT = 100
_FIELDS = "core,basic,time,io,model,usage,prompt,trace_context"
"""Without `metadata`, which this API cuts at 200 characters."""
_NOT_THERE = (400, 404, 405, 501)
"""Status codes of servers that do not have an endpoint yet."""
_LONGEST = timedelta(days=1)
"""Longer traces that start before `--since` and end after it are not found."""
_PUBLIC, _SECRET = "LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"

_Rows = Iterator[dict[str, Any]]


def rows_of(place: str, since: datetime | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of the project of the keys.

    Args:
        place: Address of the server.
        since: Leave out sessions without a trace that may have ended since then.

    Raises:
        RequestError: A key is not set.
        ServiceError: The server cannot be reached, or refuses.
    """
    public, secret = secret_from_environment(_PUBLIC), secret_from_environment(_SECRET)
    if public is None or secret is None:
        raise RequestError(
            f"Langfuse's API needs the keys of a project in {_PUBLIC} and {_SECRET}",
            hint="find them in the settings of the project",
        )
    headers = {"Authorization": basic(public.get_secret_value(), secret.get_secret_value())}
    with Web("Langfuse", place, headers, key_variable=_SECRET) as web:
        is_new = web.has(f"{_API}/v2/observations", {"limit": 1, "fields": "core"}, absent=_NOT_THERE)
        of_traces = _by_cursor if is_new else _by_page
        earliest: datetime | None = None
        for kind, row in of_traces(web, since):
            if since is not None and (start := time_at(row.get("start_time"), "startTime")) is not None:
                earliest = start if earliest is None else min(start, earliest)
            yield kind, row
        if since is None or earliest is not None:
            for row in _scores(web, earliest):
                yield SCORE, row


def _by_cursor(web: Web, since: datetime | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield observations with their session ids."""
    path = f"{_API}/v2/observations"
    wanted: list[dict[str, str]] = [{}]
    if since is not None:
        late = _cursor(web, path, {"fields": "core,basic", "fromStartTime": _written(since - _LONGEST)})
        wanted = _groups((row.get("session_id"), row.get("trace_id")) for row in late)
    for one in wanted:
        for row in _cursor(web, path, {"fields": _FIELDS, **one}):
            yield OBSERVATION, row


def _by_page(web: Web, since: datetime | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield traces, which have the session ids, and observations."""
    if since is None:
        for row in _pages(web, f"{_API}/traces", {"fields": "core,io"}):
            yield TRACE, row
        for row in _pages(web, f"{_API}/observations", {}):
            yield OBSERVATION, row
        return
    late = _pages(web, f"{_API}/traces", {"fields": "core", "fromTimestamp": _written(since - _LONGEST)})
    for one in _groups((row.get("session_id"), row["id"]) for row in late):
        if "sessionId" in one:
            traces = list(_pages(web, f"{_API}/traces", {"fields": "core,io", **one}))
        else:
            traces = [row_of(web.get(f"{_API}/traces/{one['traceId']}"))]
        for trace in traces:
            yield TRACE, trace
            for row in _pages(web, f"{_API}/observations", {"traceId": trace["id"]}):
                yield OBSERVATION, row


def _groups(found: Iterator[tuple[Any, Any]]) -> list[dict[str, str]]:
    """Return the query of each session, and of each trace without a session."""
    queries = {}
    for session, trace in found:
        name = "sessionId" if session else "traceId"
        queries[name, session or trace] = {name: session or trace}
    return list(queries.values())


def _scores(web: Web, since: datetime | None) -> _Rows:
    query = {} if since is None else {"fromTimestamp": _written(since)}
    path = f"{_API}/v3/scores"
    if not web.has(path, {"limit": 1}, absent=_NOT_THERE):
        yield from _pages(web, f"{_API}/v2/scores", query)
        return
    for row in _cursor(web, path, {"fields": "details,subject,annotation", **query}):
        subject = row.pop("subject", None)
        if isinstance(subject, dict):
            kind, trace_id = subject.get("kind"), subject.get("traceId")
            row[f"{'dataset_run' if kind == 'experiment' else kind}_id"] = subject.get("id")
            if trace_id:
                row["trace_id"] = trace_id
        yield row


def _cursor(web: Web, path: str, query: Mapping[str, Any]) -> _Rows:
    cursor: Any = None
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        answer = web.get(path, {**query, "limit": _LIMIT, **more})
        yield from _data(answer, path)
        before, cursor = cursor, (answer.get("meta") or {}).get("cursor")
        if not cursor or cursor == before:
            return


def _pages(web: Web, path: str, query: Mapping[str, Any]) -> _Rows:
    page = 1
    while True:
        answer = web.get(path, {**query, "limit": _LIMIT, "page": page})
        yield from _data(answer, path)
        total = (answer.get("meta") or {}).get("totalPages")
        if not isinstance(total, int) or page >= total:
            return
        page += 1


def _data(answer: dict[str, Any], path: str) -> list[dict[str, Any]]:
    rows = answer.get("data")
    if not isinstance(rows, list) or not all(isinstance(one, dict) and "id" in one for one in rows):
        raise ServiceError(f"Langfuse answered {path} without a list", hint="trajkit reads Langfuse 3 and 4")
    return [row_of(one) for one in rows]


def row_of(sent: dict[str, Any]) -> dict[str, Any]:
    """Return an object of the API with the names of the export."""
    row = {re.sub(r"(?<=[a-z])([A-Z])", lambda one: f"_{one[1].lower()}", name): sent[name] for name in sent}
    if "model" in row:
        row["provided_model_name"] = row.pop("model")
    return row


def _written(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
