"""Read sessions from Langfuse: from a blob storage export, from the public API, or from its ClickHouse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trajkit.sources.calls import Gathered
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.langfuse import api, files, tables
from trajkit.sources.langfuse.rows import SCORE, TRACE, session_of_rows
from trajkit.sources.source import Source, changed, kept, lost
from trajkit.sources.spans.span import text_of
from trajkit.sources.wish import Wish

_HOST = ".langfuse.com"


def read(place: str, wish: Wish) -> Iterator[Found | Unread]:
    """Yield the sessions of an export, of a project behind the API, or of a database."""
    rows: Iterator[files.Row | Found | Unread]
    if "://" not in place:
        rows = files.rows_of(Path(place))
    elif tables.is_database(place):
        rows = tables.rows_of(place, wish.since)
    else:
        rows = api.rows_of(place, wish.since)
    with Gathered() as gathered:
        for one in rows:
            if isinstance(one, Found | Unread):
                yield one
            else:
                _gather(gathered, *one)
        yield from gathered.sessions(session_of_rows, beside=SCORE)


def _gather(gathered: Gathered, kind: str, row: dict[str, Any]) -> None:
    trace_id = text_of(row["id"] if kind == TRACE else row.get("trace_id"))
    session_id = text_of(row.get("session_id"))
    session = None if session_id is None else f"session {session_id}"
    if trace_id is None:
        if session is not None:
            gathered.add(session, row, part=kind)
        return
    gathered.add(f"trace {trace_id}", row, part=kind)
    if session is not None and kind != SCORE:
        gathered.move(f"trace {trace_id}", session)


def _recognises(place: str) -> bool:
    if "://" not in place:
        return files.is_export(place)
    return (urlsplit(place).hostname or "").endswith(_HOST)


SOURCE = Source(
    name="langfuse",
    about="sessions of Langfuse: its export, traces as JSON, its API, or its ClickHouse tables",
    read=read,
    recognises=_recognises,
    fidelity={
        "session": kept("`session_id` of the trace, else each trace is an episode"),
        "sub-agents": kept("an AGENT observation in another"),
        "prompt": kept("where `input` is messages, a request of a model's API, or a text"),
        "tool results": kept("those that a later prompt has"),
        "tools offered": kept("where `input` or `tool_definitions` has them"),
        "thoughts": kept("where the client logs them"),
        "images and files": changed("references: Langfuse keeps them in its media storage"),
        "finish reason": kept("where `output` is the whole answer of a model's API"),
        "metrics": kept("NUMERIC and BOOLEAN scores"),
        "comments": kept("CATEGORICAL and TEXT scores, and comments of scores"),
        **lost("task and seed", "token ids"),
    },
)
