"""Read BALROG's result folders: `<environment>/<task>/<task>_run_NN.csv` and `.json` side by side."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

from trajkit.formats.reading.balrog import COLUMNS, is_run, read_run
from trajkit.formats.reading.document import BadDocument, object_at, shown
from trajkit.sources.files.found import MOST_BYTES, Found, Unread
from trajkit.sources.files.texts import read_json, read_whole
from trajkit.sources.files.walk import files_under, shown_path

RUN = re.compile(r".*_run_\d+\.csv")
"""The name of a run file."""

_ESCAPE = "˘"


def runs(root: Path) -> Iterator[Found | Unread]:
    """Yield every run under a path.

    Args:
        root: The CSV file of a run, or a folder.
    """
    within = root if root.is_dir() else None
    for path in files_under(root) if within else [root]:
        if RUN.fullmatch(path.name):
            yield _run(path, shown_path(path, root), within)
        elif path.suffix != ".json" or not path.with_suffix(".csv").exists():
            yield Unread(path.suffix)


def _run(path: Path, place: str, within: Path | None) -> Found:
    scored = path.with_suffix(".json")
    if not scored.exists():
        return Found(place, aside="a run that did not end: it has no JSON file")
    try:
        data = read_whole(path, within)
        log = object_at(read_json(scored, scored.name, within or path.parent), scored.name)
        if not is_run(log):
            raise BadDocument("not the score of a run", scored.name)
        # the environment's folder contains that of the task
        env_id = path.parent.parent.name if str(log["task"]).endswith(path.parent.name) else None
        return Found(place, read_run(log, _rows(data), env_id or None), data + json.dumps(log).encode())
    except BadDocument as error:
        return Found(place, problem=error.problem)


def _rows(data: bytes) -> list[dict[str, str]]:
    """Return the rows of a run, by column."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadDocument("not UTF-8", f"byte {error.start}") from None
    before = csv.field_size_limit(MOST_BYTES)
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), escapechar=_ESCAPE, strict=True)
        missing = set(COLUMNS) - set(reader.fieldnames or ())
        if missing:
            raise BadDocument("columns are missing", "line 1", ", ".join(sorted(missing)))
        rows = list(reader)
    except csv.Error as error:
        raise BadDocument("not a readable CSV file", value=shown(str(error))) from error
    finally:
        csv.field_size_limit(before)
    for number, row in enumerate(rows):
        if None in row or None in row.values():
            raise BadDocument("a row with a different number of columns", f"rows.{number}")
    return rows
