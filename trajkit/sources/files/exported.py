"""Read rows from exported files: Parquet, JSON lines, a JSON list or CSV, also with gzip."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import zlib
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from trajkit.formats.reading.document import BadDocument, object_at, shown
from trajkit.sources.files.found import MOST_BYTES, Found, Unread
from trajkit.sources.files.texts import json_of, lines_of, opened, value_of
from trajkit.sources.files.walk import files_under, shown_path
from trajkit.sources.spans.span import parsed

SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".json", ".csv")
_N_ROWS = 200


def suffix_of(path: Path) -> str:
    """Return the suffix of a file, without `.gz`."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def take_rows(
    root: Path, take: Callable[[dict[str, Any]], None], suffixes: Collection[str] = SUFFIXES
) -> Iterator[Found | Unread]:
    """Give each row of a file, or of the files below a folder, to a function; yield the problems.

    Args:
        root: The file or the folder.
        take: Takes a row; a `BadDocument` that it raises is the problem of the row.
        suffixes: Files in a folder with another suffix are not read.
    """
    for path in files_under(root) if root.is_dir() else [root]:
        if root.is_dir() and suffix_of(path) not in suffixes:
            yield Unread(path.suffix.lower())
            continue
        for one in rows_in(path, root):
            if isinstance(one, Found):
                yield one
                continue
            place, row = one
            try:
                take(row)
            except BadDocument as error:
                yield Found(place, problem=error.problem)


def first_rows(place: str, suffixes: Collection[str], *, most: int) -> Iterator[dict[str, Any]]:
    """Yield the first row of each of the first files at a path, to recognise what they are."""
    root = Path(place)
    if "://" in place or not root.exists():
        return
    for path in [root] if root.is_file() else itertools.islice(files_under(root), most):
        if path.suffix.lower() in suffixes:
            first = next(rows_in(path, root), None)
            if isinstance(first, tuple) and not isinstance(first, Found):
                yield first[1]


def rows_in(path: Path, root: Path) -> Iterator[tuple[str, dict[str, Any]] | Found]:
    """Yield place and object of each row of a file; a bad row is a `Found` with a problem.

    Args:
        path: The file.
        root: What is imported: the file, or a folder above it.
    """
    name, suffix = shown_path(path, root), suffix_of(path)
    try:
        with opened(path, root if root.is_dir() else None) as file:
            data = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
            for number, value in _values(data, suffix):
                place = f"{name}:{number}"
                try:
                    if isinstance(value, BadDocument):
                        raise value
                    yield place, object_at(value, "the row")
                except BadDocument as error:
                    yield Found(place, problem=error.problem)
    except BadDocument as error:
        yield Found(name, problem=error.problem)
    except (pa.ArrowException, OSError, EOFError, zlib.error, csv.Error, UnicodeError) as error:
        yield Found(name, problem=BadDocument(f"a damaged {suffix} file", value=shown(str(error))).problem)


def _values(file: IO[bytes] | gzip.GzipFile, suffix: str) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each row; a `BadDocument` for an invalid line."""
    match suffix:
        case ".parquet":
            number = 0
            for batch in pq.ParquetFile(cast("IO[bytes]", file)).iter_batches(batch_size=_N_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield number, {name: _plain(value) for name, value in row.items()}
        case ".json":
            data = file.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise BadDocument(f"longer than {MOST_BYTES // 1_000_000} MB: export JSONL or Parquet")
            rows = json_of(data, is_last_line=True)
            if isinstance(rows, dict):  # an API answer, or one row
                rows = next(
                    (rows[name] for name in ("data", "rows", "runs") if isinstance(rows.get(name), list)),
                    [rows],
                )
            if not isinstance(rows, list):
                raise BadDocument("not a list", value=shown(rows))
            yield from enumerate(rows, 1)
        case ".csv":
            before = csv.field_size_limit(MOST_BYTES)
            text = io.TextIOWrapper(cast("IO[bytes]", file), "utf-8-sig", newline="")
            try:
                for number, row in enumerate(csv.DictReader(text, strict=True), 1):
                    if None in row or None in row.values():
                        yield number, BadDocument("a row with a different number of columns")
                    else:
                        yield number, {name: value or None for name, value in row.items()}
            finally:
                csv.field_size_limit(before)
                text.detach()
        case _:
            for line in lines_of(cast("IO[bytes]", file)):
                try:
                    yield line.number, value_of(line)
                except BadDocument as error:
                    yield line.number, error


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


def nested(value: Any) -> Any:
    """Return the object or list in a JSON text, as in table cells; None for an empty text."""
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return None if value == "" else value
    return parsed(value)


def nested_object(value: Any, where: str) -> dict[str, Any]:
    """Return an object, also from a JSON text; empty for null, and for an empty map.

    Raises:
        BadDocument: It is something else.
    """
    found = nested(value)
    return {} if found in (None, []) else object_at(found, where)
