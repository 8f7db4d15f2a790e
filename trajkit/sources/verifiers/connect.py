"""Read the results of verifiers, a line at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trajkit.formats.document import BadDocument, object_at
from trajkit.schema.base import JsonObject
from trajkit.sources.calls import found_of, known_types
from trajkit.sources.files.documents import LINES
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.files.texts import lines_of, opened, read_json, value_of
from trajkit.sources.files.walk import files_under, shown_path
from trajkit.sources.source import LOST, Source, changed, kept
from trajkit.sources.verifiers.graph import is_graph, session_of_graph
from trajkit.sources.verifiers.rows import is_row, session_of_row
from trajkit.sources.wish import Wish

NAME = "verifiers"
_METADATA = "metadata.json"
_RESULTS = ("results.jsonl", "traces.jsonl")
_MOST_LOOKED_AT = 200


def read(place: str, _wish: Wish) -> Iterator[Found | Unread]:
    """Yield the rollouts below a path, a line each."""
    root = Path(place)
    within = root if root.is_dir() else None
    for path in files_under(root) if within else [root]:
        where = shown_path(path, root)
        if within and path.suffix.lower() not in LINES:
            if path.name != _METADATA:
                yield Unread(path.suffix.lower())
            continue
        try:
            metadata = _metadata(path, within)
            with opened(path, within) as file:
                for line in lines_of(file):
                    at = f"{where}:{line.number}"
                    try:
                        with known_types():
                            session = _session(object_at(value_of(line), ""), metadata, at)
                    except BadDocument as error:
                        yield Found(at, problem=error.problem)
                        continue
                    is_empty = session is None or not session.calls
                    yield Found(at, aside="no call of a model") if is_empty else found_of(session, at)
        except BadDocument as error:
            yield Found(where, problem=error.problem)


def _session(value: JsonObject, metadata: JsonObject, place: str) -> Any:
    if is_graph(value):
        return session_of_graph(value)
    if is_row(value):
        return session_of_row(value, metadata, place.rpartition(":")[2])
    raise BadDocument("no result of verifiers")


def _metadata(path: Path, within: Path | None) -> JsonObject:
    """What was evaluated, from the file beside the results; empty where there is none."""
    beside = path.parent / _METADATA
    return object_at(read_json(beside, _METADATA, within), _METADATA) if beside.is_file() else {}


def _recognises(place: str) -> bool:
    path = Path(place)
    if "://" in place or not path.exists():
        return False
    files = [path] if path.is_file() else itertools.islice(files_under(path), _MOST_LOOKED_AT)
    return any(_is_ours(one) for one in files if one.suffix.lower() in LINES)


def _is_ours(path: Path) -> bool:
    try:
        with opened(path, None) as file:
            for line in itertools.islice(lines_of(file), 1):
                value = value_of(line)
                return isinstance(value, dict) and (is_graph(value) or is_row(value))
    except BadDocument:
        pass
    return False


SOURCE = Source(
    name=NAME,
    about="results of evaluations with verifiers: results.jsonl with metadata.json, and traces.jsonl",
    read=read,
    recognises=_recognises,
    fidelity={
        "session": kept("the id of the episode; in results.jsonl example and line, as rows have no id"),
        "sub-agents": kept("in traces.jsonl: the traces of further agents"),
        "tokens": kept(
            "in traces.jsonl, and with a saved trajectory; else of the whole rollout, in `origin`"
        ),
        "cost": kept("in traces.jsonl, where the provider tells it"),
        "time": kept("in results.jsonl until 0.1.9 the start of the rollout"),
        "latency": kept("not in results.jsonl until 0.1.9"),
        "finish reason": kept("in traces.jsonl, and with a saved trajectory"),
        "failed calls": kept("in traces.jsonl; of results.jsonl the error of the rollout, in `origin`"),
        "comments": LOST,
        "tags and user": LOST,
        "task and seed": changed("the task is the key of the task or the number of the example; no seed"),
        "token ids": kept("in traces.jsonl of training clients, and with a saved trajectory"),
    },
)
"""The source."""
