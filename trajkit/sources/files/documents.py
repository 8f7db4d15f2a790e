"""Read documents that are JSON values: files, lines of a file, an array in a file, or rows of a table."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trajkit.formats.reading.atif_rows import Rows
from trajkit.formats.reading.document import BadDocument, Reading
from trajkit.formats.sts import is_sts, read_sts
from trajkit.sources.files.found import MOST_BYTES, Found, Unread
from trajkit.sources.files.known import kind_named, kind_of
from trajkit.sources.files.texts import Line, json_of, lines_of, opened, read_whole, value_of
from trajkit.sources.files.walk import ALL, Share, files_under, shown_path

LINES = (".jsonl", ".ndjson")
_ROWS_PER_BATCH = 64
_OF_MESSAGES = ("messages", "prompt", "completion", "conversations")

_Read = Callable[[], tuple[Reading | Rows, bytes]]
"""Reads a document, with the bytes that are hashed to its id."""


def documents(root: Path, name: str, share: Share = ALL) -> Iterator[Found | Unread]:
    """Yield every document under a path.

    Args:
        root: A file or a folder.
        name: Their format; a document of another one is a problem.
        share: The shard to read; lines and rows of others are not parsed.
    """
    within = root if root.is_dir() else None
    suffixes = LINES if name == "sts" else (*LINES, ".json", ".parquet")
    for path in files_under(root) if within else [root]:
        place, suffix = shown_path(path, root), path.suffix.lower()
        if not share.has_file(place):
            continue
        if within and suffix not in suffixes:  # a file that is named is read as lines
            if share.has(place):
                yield Unread(suffix)
            continue
        try:
            for at, read in _parts(path, place, name, within):
                if share.has(at):
                    yield _attempt(at, read)
        except BadDocument as error:
            if share.has(place):
                yield Found(place, problem=error.problem)


def line_document(line: Line, place: str, name: str) -> Found:
    """Return the document in a line of a file, in a format of JSON values."""
    return _attempt(f"{place}:{line.number}", partial(_of_line, line, name))


def _attempt(place: str, read: _Read) -> Found:
    try:
        reading, key = read()
    except BadDocument as error:
        return Found(place, problem=error.problem)
    return Found(place, reading, key)


def _parts(path: Path, place: str, name: str, within: Path | None) -> Iterator[tuple[str, _Read]]:
    """Yield the documents of a file, each with its place and its reader."""
    if name == "sts":
        yield place, partial(_session, path, within)
    elif path.suffix.lower() == ".json":
        yield from _of_json(path, place, name, within)
    elif path.suffix.lower() == ".parquet":
        yield from _of_table(path, place, name, within)
    else:
        with opened(path, within) as file:
            for line in lines_of(file):
                yield f"{place}:{line.number}", partial(_of_line, line, name)


def _read(value: Any, name: str) -> Reading | Rows:
    kind = kind_named(name)
    if not kind.is_one(value):
        other = kind_of(value)
        raise BadDocument(f"{other}, not {name}" if other else f"not {name}")
    rows = kind.rows(value) if kind.rows is not None else None
    return kind.read(value) if rows is None else rows


def _of_line(line: Line, name: str) -> tuple[Reading | Rows, bytes]:
    return _read(value_of(line), name), line.data


def _of_json(path: Path, place: str, name: str, within: Path | None) -> Iterator[tuple[str, _Read]]:
    """A document, or (LLaMA-Factory) an array of them."""
    data = read_whole(path, within)
    value = json_of(data, is_last_line=True)
    if not isinstance(value, list):
        yield place, lambda: (_read(value, name), data)
        return
    for number, one in enumerate(value, 1):
        yield f"{place}:{number}", lambda one=one: (_read(one, name), json.dumps(one).encode())  # type: ignore[misc]


def _session(path: Path, within: Path | None) -> tuple[Reading, bytes]:
    """A session trace, which is a file of lines."""
    lines: list[dict[str, Any]] = []
    texts: list[bytes] = []
    n_bytes = 0
    with opened(path, within) as file:
        for line in lines_of(file):
            n_bytes += len(line.data)
            if n_bytes > MOST_BYTES:
                raise BadDocument(f"longer than {MOST_BYTES // 1_000_000} MB")
            try:
                value = value_of(line)
            except BadDocument as error:
                problem = error.problem
                raise BadDocument(problem.kind, f"line {line.number}", problem.value) from None
            if not lines and not is_sts(value):
                other = kind_of(value)
                raise BadDocument(f"{other}, not sts" if other else "not sts")
            if not isinstance(value, dict):
                raise BadDocument("not an object", f"line {line.number}")
            lines.append(value)
            texts.append(line.data)
    if not lines:
        raise BadDocument("empty")
    return read_sts(lines), b"\n".join(texts)


def _of_table(path: Path, place: str, name: str, within: Path | None) -> Iterator[tuple[str, _Read]]:
    """Yield the rows of a Parquet file."""
    number = 0
    try:
        with opened(path, within) as raw, pq.ParquetFile(raw) as file:
            for batch in file.iter_batches(_ROWS_PER_BATCH):
                fields = [(field.name, field.type) for field in batch.schema]
                for row in batch.to_pylist():
                    number += 1
                    yield f"{place}:{number}", partial(_of_row, row, fields, name)
    except (pa.ArrowException, OSError) as error:
        text = str(error).partition("\n")[0]
        raise BadDocument("not a readable Parquet file", value=text) from error


def _of_row(row: dict[str, Any], fields: list[tuple[str, Any]], name: str) -> tuple[Reading | Rows, bytes]:
    value = {key: _decoded(row[key], kind) for key, kind in fields}
    text = json.dumps(value)
    if len(text) > MOST_BYTES:
        raise BadDocument(f"longer than {MOST_BYTES // 1_000_000} MB")
    # in a table every message has every field
    bare = {key: without_nulls(item) if key in _OF_MESSAGES else item for key, item in value.items()}
    return _read(bare, name), text.encode()


def _decoded(value: Any, kind: Any) -> Any:
    """Return the value of a cell as JSON, with JSON columns parsed at any depth."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(kind, pa.JsonType):
        return json_of(value.encode())
    if pa.types.is_struct(kind):
        return {field.name: _decoded(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {str(name): _decoded(item, kind.item_type) for name, item in value}
    if isinstance(value, list):
        return [_decoded(item, kind.value_type) for item in value]
    match value:
        case bool() | int() | str():
            return value
        case float() | Decimal():  # infinity is not a JSON number
            return float(value) if math.isfinite(value) else str(value)
        case datetime.date() | datetime.time():
            return value.isoformat()
        case bytes():  # such as images and audio
            return {"n_bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
        case _:
            return str(value)


def without_nulls(messages: Any) -> Any:
    """Return messages without their null fields; anything else as it is."""
    if not isinstance(messages, list):
        return messages
    return [
        {name: item for name, item in one.items() if item is not None or name == "content"}
        if isinstance(one, dict)
        else one
        for one in messages
    ]
