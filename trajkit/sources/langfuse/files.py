"""Read rows from Langfuse's blob storage export: folders of Parquet, JSONL, JSON or CSV files."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from trajkit.errors import RequestError
from trajkit.formats.document import BadDocument, object_at, shown
from trajkit.schema.base import JsonObject
from trajkit.sources.files.found import MOST_BYTES, Found, Unread
from trajkit.sources.files.texts import json_of, lines_of, opened, value_of
from trajkit.sources.files.walk import files_under, folders_under, shown_path
from trajkit.sources.langfuse.rows import OBSERVATION, SCORE, TRACE

FOLDERS = {"traces": TRACE, "observations": OBSERVATION, "observations_v2": OBSERVATION, "scores": SCORE}
"""The folders of an export by the kind of their rows."""
_SUFFIXES = (".parquet", ".jsonl", ".json", ".csv")
_DEPTH = 3
_N_ROWS = 200

Row = tuple[str, JsonObject]
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
        suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
        if path.parent.name == "manifests":
            continue
        if kind is None or suffix not in _SUFFIXES:
            yield Unread(path.suffix.lower())
            continue
        n_read += 1
        yield from _rows(path, root, kind, suffix)
    if not n_read:
        raise RequestError(
            f"{root} is no export of Langfuse",
            hint=f"known are files {', '.join(_SUFFIXES)} in folders {', '.join(FOLDERS)}",
        )


def _rows(path: Path, root: Path, kind: str, suffix: str) -> Iterator[Row | Found]:
    name = shown_path(path, root)
    try:
        with opened(path, root if root.is_dir() else None) as file:
            data = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
            for place, value in _values(data, suffix):
                try:
                    if isinstance(value, BadDocument):
                        raise value
                    row = object_at(value, "the row")
                    if not isinstance(row.get("id"), str):
                        raise BadDocument("a row without its id", "id", shown(row.get("id")))
                    if kind == OBSERVATION and not row.get("trace_id"):
                        continue  # of the time before traces were needed
                    yield kind, row
                except BadDocument as error:
                    yield Found(f"{name}:{place}", problem=error.problem)
    except BadDocument as error:
        yield Found(name, problem=error.problem)
    except (pa.ArrowException, OSError, EOFError, zlib.error, csv.Error, UnicodeError) as error:
        yield Found(name, problem=BadDocument(f"a damaged {suffix} file", value=shown(str(error))).problem)


def _values(file: IO[bytes] | gzip.GzipFile, suffix: str) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each row; a `BadDocument` for a line that is none."""
    match suffix:
        case ".parquet":
            number = 0
            for batch in pq.ParquetFile(file).iter_batches(batch_size=_N_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield number, {name: _plain(value) for name, value in row.items()}
        case ".jsonl":
            for line in lines_of(file):  # type: ignore[arg-type]
                try:
                    yield line.number, value_of(line)
                except BadDocument as error:
                    yield line.number, error
        case ".json":
            data = file.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise BadDocument(f"longer than {MOST_BYTES // 1_000_000} MB: export JSONL or Parquet")
            rows = json_of(data, is_last_line=True)
            if not isinstance(rows, list):
                raise BadDocument("not a list", value=shown(rows))
            yield from enumerate(rows, 1)
        case _:
            before = csv.field_size_limit(MOST_BYTES)
            text = io.TextIOWrapper(file, "utf-8", newline="")  # type: ignore[arg-type]
            try:
                yield from enumerate(csv.DictReader(text), 1)
            finally:
                csv.field_size_limit(before)
                text.detach()


def _plain(value: Any) -> Any:
    """Return a value of Parquet as one of JSON."""
    match value:
        case datetime():
            return value.isoformat()
        case Decimal():
            return float(value)
        case bytes():
            return value.decode(errors="replace")
        case [(_, _), *_] if all(isinstance(one, tuple) for one in value):  # a map
            return {str(_plain(key)): _plain(item) for key, item in value}
        case list():
            return [_plain(one) for one in value]
        case dict():
            return {name: _plain(one) for name, one in value.items()}
    return value
