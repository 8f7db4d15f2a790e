"""Read exported traces and spans from JSON lines, in any order, a session at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trajkit.formats.reading.document import BadDocument, objects_at, shown
from trajkit.sources.calls import Gathered, found_by
from trajkit.sources.files.documents import LINES
from trajkit.sources.files.exported import first_rows, rows_under
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.openai_agents.rows import session_of
from trajkit.sources.source import Source, changed, kept, lost
from trajkit.sources.wish import Wish

NAME = "openai-agents"
_OBJECTS = ("trace", "trace.span")
_MOST_LOOKED_AT = 20


def read(place: str, _wish: Wish) -> Iterator[Found | Unread]:
    """Yield the sessions in the lines below a path: traces of one group, else each trace."""
    with Gathered() as gathered:
        for one in rows_under(Path(place), LINES):
            if isinstance(one, Found | Unread):
                yield one
                continue
            where, row = one
            try:
                for item in _items(row):
                    _add(gathered, item)
            except BadDocument as error:
                yield Found(where, problem=error.problem)
        for name, parts in gathered.groups():
            make = partial(session_of, name, parts.get("trace", []), parts.get("trace.span", []))
            yield found_by(make, name, empty="a trace without a call of a model")


def _items(row: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """The items of a line: one, or a batch as it is sent to OpenAI."""
    return objects_at(row["data"], "data") if "object" not in row and "data" in row else [row]


def _add(gathered: Gathered, item: dict[str, Any]) -> None:
    kind = item.get("object")
    if kind not in _OBJECTS:
        raise BadDocument("neither a trace nor a span", "object", shown(kind))
    trace = item.get("id" if kind == "trace" else "trace_id")
    if not isinstance(trace, str) or not trace:
        raise BadDocument("no id of a trace", "id" if kind == "trace" else "trace_id", shown(trace))
    if kind == "trace" and isinstance(group := item.get("group_id"), str) and group:
        gathered.move(trace, group)
    gathered.add(trace, item, part=kind)


def _recognises(place: str) -> bool:
    try:
        items = [_items(row)[0] for row in first_rows(place, LINES, most=_MOST_LOOKED_AT) if row]
    except (BadDocument, IndexError):
        return False
    return any(
        one.get("object") in _OBJECTS and ("workflow_name" in one or "span_data" in one) for one in items
    )


SOURCE = Source(
    name=NAME,
    about="traces of the OpenAI Agents SDK, as JSON lines of exported traces and spans",
    read=read,
    recognises=_recognises,
    fidelity={
        "session": kept("the group of the trace; without one each trace is a session"),
        "sub-agents": kept("agents as tools, and agents that a run is handed to"),
        "prompt": kept("response spans: where the processor writes `input` and `response`"),
        "answer": kept("response spans: where the processor writes `response`"),
        "tools offered": kept("of response spans; generation spans do not have them"),
        "thoughts": kept("where the provider gives them"),
        "tags and user": changed("texts in the metadata of the trace"),
        **lost("cost", "finish reason", "metrics", "comments", "task and seed", "token ids"),
    },
)
"""The source."""
