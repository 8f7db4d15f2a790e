"""Read exported traces and spans from JSON lines, in any order, a session at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trajkit.formats.document import BadDocument, object_at, objects_at, shown
from trajkit.sources.calls import Gathered, found_of, known_types
from trajkit.sources.files.documents import LINES
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.files.texts import lines_of, opened, value_of
from trajkit.sources.files.walk import files_under, shown_path
from trajkit.sources.openai_agents.rows import session_of
from trajkit.sources.source import LOST, Source, changed, kept
from trajkit.sources.wish import Wish

NAME = "openai-agents"
_OBJECTS = ("trace", "trace.span")
_MOST_LOOKED_AT = 20


def read(place: str, _wish: Wish) -> Iterator[Found | Unread]:
    """Yield the sessions in the lines below a path: traces of one group, else each trace."""
    root = Path(place)
    within = root if root.is_dir() else None
    with Gathered() as gathered:
        for path in files_under(root) if within else [root]:
            where = shown_path(path, root)
            if within and path.suffix.lower() not in LINES:
                yield Unread(path.suffix.lower())
                continue
            yield from _gather(gathered, path, where, within)
        for name, parts in gathered.groups():
            try:
                with known_types():
                    session = session_of(name, parts.get("trace", []), parts.get("trace.span", []))
            except BadDocument as error:
                yield Found(name, problem=error.problem)
                continue
            if session.calls:
                yield found_of(session, name)
            else:
                yield Found(name, aside="a trace without a call of a model")


def _gather(gathered: Gathered, path: Path, where: str, within: Path | None) -> Iterator[Found]:
    try:
        with opened(path, within) as file:
            for line in lines_of(file):
                try:
                    for item in _items(value_of(line)):
                        _add(gathered, item)
                except BadDocument as error:
                    yield Found(f"{where}:{line.number}", problem=error.problem)
    except BadDocument as error:
        yield Found(where, problem=error.problem)


def _items(value: Any) -> Iterator[dict[str, Any]]:
    """The items of a line: one, or a batch as it is sent to OpenAI."""
    value = object_at(value, "")
    yield from objects_at(value["data"], "data") if "object" not in value and "data" in value else [value]


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
    path = Path(place)
    if "://" in place or not path.exists():
        return False
    files = [path] if path.is_file() else itertools.islice(files_under(path), _MOST_LOOKED_AT)
    return any(one.suffix.lower() in LINES and _begins_so(one) for one in files)


def _begins_so(path: Path) -> bool:
    try:
        with opened(path, None) as file:
            for line in itertools.islice(lines_of(file), 1):
                item = next(_items(value_of(line)), {})
                return item.get("object") in _OBJECTS and ("workflow_name" in item or "span_data" in item)
    except BadDocument:
        pass
    return False


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
        "cost": LOST,
        "finish reason": LOST,
        "metrics": LOST,
        "comments": LOST,
        "tags and user": changed("texts in the metadata of the trace"),
        "task and seed": LOST,
        "token ids": LOST,
    },
)
"""The source."""
