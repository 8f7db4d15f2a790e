"""Read rows from Langfuse's blob storage export: folders of Parquet, JSONL, JSON or CSV files.

A trace that was downloaded in the user interface, or got from the API, is one JSON file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trajkit.errors import RequestError
from trajkit.formats.reading.document import BadDocument, shown
from trajkit.sources.files.exported import SUFFIXES, rows_in, suffix_of
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.files.texts import read_json
from trajkit.sources.files.walk import files_under, folders_under, shown_path
from trajkit.sources.langfuse.api import row_of
from trajkit.sources.langfuse.rows import OBSERVATION, SCORE, TRACE
from trajkit.sources.spans.span import listed

FOLDERS = {"traces": TRACE, "observations": OBSERVATION, "observations_v2": OBSERVATION, "scores": SCORE}
"""The folders of an export by the kind of their rows."""
_DEPTH = 3

Row = tuple[str, dict[str, Any]]
"""The kind of a row, and the row."""


def is_export(place: str) -> bool:
    """Whether a folder has the folders of an export in it."""
    root = Path(place)
    if not root.is_dir():
        return False
    return any(
        (folder / "scores").is_dir()
        and ((folder / "observations_v2").is_dir() or (folder / "observations").is_dir())
        for folder in folders_under(root, depth=_DEPTH)
    )


def rows_of(root: Path) -> Iterator[Row | Found | Unread]:
    """Yield the rows of an export, and what is wrong with it.

    Raises:
        RequestError: No file there is in a folder of an export.
    """
    n_read = 0
    for path in files_under(root) if root.is_dir() else [root]:
        kind = FOLDERS.get(path.parent.name)
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
            f"{root} is no export of Langfuse",
            hint=f"known are files {', '.join(SUFFIXES)} in folders {', '.join(FOLDERS)}, and traces as JSON",
        )


def _trace(path: Path, root: Path) -> dict[str, Any] | None:
    """The trace that was downloaded to a file; None where there is none."""
    try:
        value = read_json(path, path.name, root if root.is_dir() else None)
    except BadDocument:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("observations"), list) else None


def _rows_of_trace(value: dict[str, Any], place: str) -> Iterator[Row | Found]:
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


def _rows(path: Path, root: Path, kind: str) -> Iterator[Row | Found]:
    for found in rows_in(path, root):
        if isinstance(found, Found):
            yield found
            continue
        place, row = found
        if not isinstance(row.get("id"), str):
            problem = BadDocument("a row without its id", "id", shown(row.get("id"))).problem
            yield Found(place, problem=problem)
        elif kind != OBSERVATION or row.get("trace_id"):  # a time ago observations needed no trace
            yield kind, row
