"""Read groups of spans from the API of a running Phoenix server."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from trajkit.errors import RequestError, ServiceError
from trajkit.formats.reading.document import object_at, text_at
from trajkit.sources.calls import Gathered
from trajkit.sources.phoenix.tables import Group, latest
from trajkit.sources.web import Web, bearer, told

_KEY = "PHOENIX_API_KEY"
_PAGE, _BATCH = 1000, 50


def groups_of(place: str, project: str | None) -> Iterator[Group]:
    """Yield the groups of a server, project by project: its sessions, then the traces without a session.

    Args:
        place: Address of the server.
        project: Name of the only project that is read; None for all.

    Raises:
        RequestError: There is no such project.
        ServiceError: The server cannot be reached, or refuses.
    """
    with Web("Phoenix", place, bearer(_KEY), key_variable=_KEY) as web:
        found = {told(one, "name"): told(one, "id") for one in _paged(web, "/v1/projects", {})}
        if project is not None and project not in found:
            raise RequestError(f"no project {project!r}", hint=f"there are: {', '.join(sorted(found))}")
        for name, project_id in found.items():
            if project in (None, name):
                yield from _of_project(web, name, f"/v1/projects/{quote(project_id, safe='')}")


def _of_project(web: Web, project: str, path: str) -> Iterator[Group]:
    with Gathered() as gathered:
        for one in _paged(web, f"{path}/sessions", {"order": "asc"}):
            own = f"session {told(one, 'session_id')}"
            gathered.add(own, one["session_id"], part="session")
            for trace in one.get("traces") or ():
                gathered.move(told(trace, "trace_id"), own)
        for one in _paged(web, f"{path}/traces", {"sort": "start_time", "order": "asc"}):
            trace_id = told(one, "trace_id")
            gathered.add(trace_id, {"id": trace_id, "end": told(one, "end_time")}, part="trace")
        for _, parts in gathered.groups():
            ids = [one["id"] for one in parts.get("trace", ())]
            trace_of: dict[str, str] = {}  # by span
            (session,) = parts.get("session") or [None]
            if ids:
                yield Group(
                    name=session or ids[0],
                    is_session=session is not None,
                    project=project,
                    ended_at=latest(one["end"] for one in parts["trace"]),
                    spans=_spans(web, path, ids, trace_of),
                    annotations=_annotations(web, path, ids, trace_of, session),
                )


def _spans(
    web: Web, path: str, trace_ids: Sequence[str], trace_of: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the spans of traces, and add the trace of each span to `trace_of`."""
    for ids in _batches(trace_ids):
        for one in _paged(web, f"{path}/spans", {"trace_id": ids}):
            context = object_at(one.get("context"), "context")
            trace_of[told(context, "span_id")] = told(context, "trace_id")
            yield {**one, **context}


def _annotations(
    web: Web, path: str, trace_ids: Sequence[str], trace_of: Mapping[str, str], session: str | None
) -> Iterator[dict[str, Any]]:
    if session is not None:
        yield from _named(web, f"{path}/session_annotations", {"session_ids": session})
    for ids in _batches(trace_ids):
        yield from _named(web, f"{path}/trace_annotations", {"trace_ids": ids})
    for ids in _batches([*trace_of]):
        for one in _named(web, f"{path}/span_annotations", {"span_ids": ids}):
            yield {**one, "trace_id": trace_of.get(told(one, "span_id"))}


def _named(web: Web, path: str, query: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield annotations with the names of the tables."""
    for one in _paged(web, path, query):
        result = object_at(one.get("result") or {}, "annotation.result")
        yield {**one, **result, "id": _number_of_id(one.get("id"))}


def _number_of_id(global_id: Any) -> str:
    """Return the id of the API, `KIND:NUMBER` in base64, as text; the database has kind and number."""
    try:
        return base64.b64decode(text_at(global_id, "id"), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return str(global_id)


def _batches(ids: Sequence[str]) -> Iterator[list[str]]:
    return (list(ids[at : at + _BATCH]) for at in range(0, len(ids), _BATCH))


def _paged(web: Web, path: str, query: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    cursor: str | None = None
    while True:
        more: dict[str, str] = {} if cursor is None else {"cursor": cursor}
        answer = web.get(path, {**query, "limit": _PAGE, **more})
        rows = answer.get("data")
        if not isinstance(rows, list) or not all(isinstance(one, dict) for one in rows):
            raise ServiceError(
                f"Phoenix answered {path} without a list", hint="trajkit reads the API of Phoenix 20"
            )
        yield from rows
        before, cursor = cursor, answer.get("next_cursor")
        if cursor is None or cursor == before:
            return
