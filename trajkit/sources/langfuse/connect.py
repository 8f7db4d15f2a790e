"""Read sessions from Langfuse: from a blob storage export, from the public API, or from its ClickHouse.

An export is folders of Parquet, JSONL, JSON or CSV files. A trace that was downloaded in the user interface,
or from the API, is one JSON file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trajkit.errors import RequestError
from trajkit.formats.reading.document import BadDocument, shown
from trajkit.sources.calls import Gathered
from trajkit.sources.files.exported import SUFFIXES, rows_in, suffix_of
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.files.texts import read_json
from trajkit.sources.files.walk import files_under, folders_under, shown_path
from trajkit.sources.langfuse import api, tables
from trajkit.sources.langfuse.api import row_of
from trajkit.sources.langfuse.rows import OBSERVATION, SCORE, TRACE, session_of_rows
from trajkit.sources.source import Source, changed, kept, lost
from trajkit.sources.spans.span import listed, text_of
from trajkit.sources.wish import Wish

_FOLDERS = {"traces": TRACE, "observations": OBSERVATION, "observations_v2": OBSERVATION, "scores": SCORE}
"""The folders of an export, by the kind of their rows."""
_DEPTH = 3

_Row = tuple[str, dict[str, Any]]
"""The kind of a row, and the row."""


def read(place: str, wish: Wish) -> Iterator[Found | Unread]:
    """Yield the sessions of an export, of a project behind the API, or of a database."""
    rows: Iterator[_Row | Found | Unread]
    if "://" not in place:
        rows = _rows_of_files(Path(place))
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


def _rows_of_files(root: Path) -> Iterator[_Row | Found | Unread]:
    """Yield the rows of an export, and its problems."""
    n_read = 0
    for path in files_under(root) if root.is_dir() else [root]:
        kind = _FOLDERS.get(path.parent.name)
        if path.parent.name == "manifests":
            continue
        if kind is None and path.suffix.lower() == ".json" and (trace := _trace(path, root)) is not None:
            n_read += 1
            yield from _rows_of_trace(trace, shown_path(path, root))
            continue
        if kind is None or suffix_of(path) not in SUFFIXES:
            yield Unread(path.suffix.lower())
            continue
        n_read += 1
        yield from _rows(path, root, kind)
    if not n_read:
        raise RequestError(
            f"{root} is not an export of Langfuse",
            hint=f"trajkit reads files {', '.join(SUFFIXES)} in folders {', '.join(_FOLDERS)},"
            " and traces as JSON",
        )


def _trace(path: Path, root: Path) -> dict[str, Any] | None:
    """Return the trace that was downloaded to a file; None if there is none."""
    try:
        value = read_json(path, path.name, root if root.is_dir() else None)
    except BadDocument:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("observations"), list) else None


def _rows_of_trace(value: dict[str, Any], place: str) -> Iterator[_Row | Found]:
    named = value.get("traces", [value.get("trace", value)])
    traces = [one for one in listed(named) if isinstance(one, dict) and "id" in one]
    for kind, rows in (
        (TRACE, [{name: item for name, item in one.items() if name != "observations"} for one in traces]),
        (OBSERVATION, value["observations"]),
        (SCORE, [score for one in traces for score in listed(one.get("scores"))]),
    ):
        for number, row in enumerate(rows):
            if isinstance(row, dict) and isinstance(row.get("id"), str):
                yield kind, row_of(row)
            else:
                problem = BadDocument("a row without its id", f"{kind}.{number}", shown(row)).problem
                yield Found(place, problem=problem)


def _rows(path: Path, root: Path, kind: str) -> Iterator[_Row | Found]:
    for found in rows_in(path, root):
        if isinstance(found, Found):
            yield found
            continue
        place, row = found
        if not isinstance(row.get("id"), str):
            problem = BadDocument("a row without its id", "id", shown(row.get("id"))).problem
            yield Found(place, problem=problem)
        elif kind != OBSERVATION or row.get("trace_id"):  # older observations need no trace
            yield kind, row


def _is_export(place: str) -> bool:
    """Whether a folder has the folders of an export in it."""
    root = Path(place)
    if not root.is_dir():
        return False
    return any(
        (folder / "scores").is_dir()
        and ((folder / "observations_v2").is_dir() or (folder / "observations").is_dir())
        for folder in folders_under(root, depth=_DEPTH)
    )


def _recognises(place: str) -> bool:
    if "://" not in place:
        return _is_export(place)
    return (urlsplit(place).hostname or "").endswith(".langfuse.com")


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
