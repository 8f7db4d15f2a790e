"""Recognise the format of a file or a folder from its documents."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trajkit.errors import RequestError
from trajkit.formats.reading.document import BadDocument
from trajkit.formats.reading.inspect import is_inspect
from trajkit.formats.reading.preference import SIDES
from trajkit.formats.sts import is_sts
from trajkit.sources.files.documents import LINES
from trajkit.sources.files.jobs import DEPTH, JOBS, RESULT
from trajkit.sources.files.known import NAMES, kind_of
from trajkit.sources.files.runs import RUN
from trajkit.sources.files.texts import json_of, lines_of, opened, read_whole, value_of
from trajkit.sources.files.walk import files_under, folders_under
from trajkit.store.layout import MANIFEST_NAME, TABLES

_MOST_LOOKED_AT = 1000
_MOST_LINES = 100
_HINT = f"name the format with --from: {', '.join(NAMES)}"


def recognise(root: Path) -> str:
    """Return the name of the format.

    Args:
        root: A file or a folder.

    Raises:
        RequestError: No file there is in a known format, or it is a store.
    """
    if root.is_file():
        found = _of_file(root, None)
        if found is None:
            if not root.stat().st_size:
                raise RequestError(f"{root} is empty")
            fault = _first_fault(root)
            hint = "JSON in UTF-8 is read" if fault else _HINT
            raise RequestError(f"{root} is not in a known format{fault}", hint=hint)
        return found
    if (root / MANIFEST_NAME).is_file() and all((root / table).is_dir() for table in TABLES):
        raise RequestError(f"{root} is a store already", hint=f"`trajkit info {root}` describes it")
    # first, because a job contains trajectories
    if (job := _of_job(root)) is not None:
        return job
    n_seen = 0
    for path in itertools.islice(files_under(root), _MOST_LOOKED_AT):
        n_seen += 1
        if (found := _of_file(path, root)) is not None:
            return found
    if not n_seen:
        raise RequestError(f"{root} has no files in it")
    raise RequestError(f"none of the first {n_seen:,} files in {root} is in a known format", hint=_HINT)


def _of_job(root: Path) -> str | None:
    folders = itertools.islice(folders_under(root, depth=DEPTH), _MOST_LOOKED_AT)
    for folder in folders:
        if (folder / RESULT).is_file():
            value = _json(folder / RESULT, root)
            if (
                name := next((name for name, (is_one, *_) in JOBS.items() if is_one(value)), None)
            ) is not None:
                return name
    return None


def _of_file(path: Path, within: Path | None) -> str | None:
    suffix = path.suffix.lower()
    if RUN.fullmatch(path.name):
        return "balrog"
    if suffix == ".eval":
        return "inspect"
    if suffix in LINES:
        first = _first_line(path, within)
        return "sts" if is_sts(first) else kind_of(first)
    if suffix == ".parquet":
        return _of_columns(path, within)
    if suffix == ".json" and not path.with_suffix(".csv").exists():
        value = _json(path, within)
        if is_inspect(value):
            return "inspect"
        return kind_of(value[0] if isinstance(value, list) and value else value)
    return None


def _json(path: Path, within: Path | None) -> Any:
    try:
        return json_of(read_whole(path, within))
    except BadDocument:
        return None  # the import reports it


def _first_line(path: Path, within: Path | None) -> Any:
    """Return the value of the first valid line."""
    try:
        with opened(path, within) as file:
            for line in itertools.islice(lines_of(file), _MOST_LINES):
                with contextlib.suppress(BadDocument):  # the import reports it
                    return value_of(line)
    except (BadDocument, OSError):
        pass
    return None


def _first_fault(path: Path) -> str:
    """Return why the first document of a JSON file cannot be read; empty if it can, or if there is none."""
    try:
        if path.suffix.lower() in LINES:
            with opened(path, None) as file:
                for line in itertools.islice(lines_of(file), 1):
                    value_of(line)
        elif path.suffix.lower() == ".json":
            json_of(read_whole(path, None))
    except BadDocument as error:
        return f": {error.problem.kind}: {error.problem.value}"
    return ""


def _of_columns(path: Path, within: Path | None) -> str | None:
    try:
        with opened(path, within) as file:
            names = set(pq.read_schema(file).names)
    except (BadDocument, pa.ArrowException, OSError):
        return None
    if any(names >= set(pair) for pair in SIDES):
        return "preference"
    if names & {"conversations", "conversation"}:
        return "sharegpt"
    if "messages" in names or names >= {"prompt", "completion"}:
        return "hf-messages"
    return "alpaca" if names >= {"instruction", "output"} else None
