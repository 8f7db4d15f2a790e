"""Read the results of verifiers, a line at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from trajkit.formats.reading.document import BadDocument, object_at
from trajkit.schema.base import JsonObject
from trajkit.sources.calls import Session, found_by
from trajkit.sources.files.documents import LINES
from trajkit.sources.files.exported import first_rows, rows_in
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.files.texts import read_json
from trajkit.sources.files.walk import files_under, shown_path
from trajkit.sources.source import Source, changed, kept, lost
from trajkit.sources.verifiers.rows import is_graph, is_row, session_of_graph, session_of_row
from trajkit.sources.wish import Wish

_METADATA = "metadata.json"
_RESULTS = ("results.jsonl", "traces.jsonl")
_MOST_LOOKED_AT = 200


def read(place: str, _wish: Wish) -> Iterator[Found | Unread]:
    """Yield the rollouts below a path, a line each."""
    root = Path(place)
    within = root if root.is_dir() else None
    for path in files_under(root) if within else [root]:
        if within and path.suffix.lower() not in LINES:
            if path.name != _METADATA:
                yield Unread(path.suffix.lower())
            continue
        try:
            metadata = _metadata(path, within)
        except BadDocument as error:
            yield Found(shown_path(path, root), problem=error.problem)
            continue
        for one in rows_in(path, root):
            if isinstance(one, Found):
                yield one
            else:
                at, row = one
                yield found_by(partial(_session, row, metadata, at), at, empty="no model call")


def _session(value: JsonObject, metadata: JsonObject, place: str) -> Session | None:
    if is_graph(value):
        return session_of_graph(value)
    if is_row(value):
        return session_of_row(value, metadata, place.rpartition(":")[2])
    raise BadDocument("not a result of verifiers")


def _metadata(path: Path, within: Path | None) -> JsonObject:
    """Return the metadata of the evaluation, from the file beside the results; empty if there is none."""
    beside = path.parent / _METADATA
    return object_at(read_json(beside, _METADATA, within), _METADATA) if beside.is_file() else {}


def _recognises(place: str) -> bool:
    return any(is_graph(row) or is_row(row) for row in first_rows(place, LINES, most=_MOST_LOOKED_AT))


SOURCE = Source(
    name="verifiers",
    about="results of evaluations with verifiers: results.jsonl with metadata.json, and traces.jsonl",
    read=read,
    recognises=_recognises,
    fidelity={
        "session": kept("the id of the episode; in results.jsonl example and line, as rows have no id"),
        "sub-agents": kept("in traces.jsonl: the traces of further agents"),
        "tokens": kept(
            "in traces.jsonl, and with a saved trajectory; else of the whole rollout, in `origin`"
        ),
        "cost": kept("in traces.jsonl, where the provider reports it"),
        "time": kept("in results.jsonl until 0.1.9 the start of the rollout"),
        "latency": kept("not in results.jsonl until 0.1.9"),
        "finish reason": kept("in traces.jsonl, and with a saved trajectory"),
        "failed calls": kept("in traces.jsonl; of results.jsonl the error of the rollout, in `origin`"),
        "task and seed": changed("the task is the key of the task or the number of the example; no seed"),
        "token ids": kept("in traces.jsonl of training clients, and with a saved trajectory"),
        **lost("comments", "tags and user"),
    },
)
