"""Documents that are JSON values: a file each, lines of a file, an array in one, or rows of a table."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trajkit.formats.reading.atif_rows import Rows
from trajkit.formats.reading.document import BadDocument, Reading
from trajkit.formats.sts import is_sts, read_sts
from trajkit.sources.files.found import MOST_BYTES, Found, Unread
from trajkit.sources.files.known import kind_named, kind_of
from trajkit.sources.files.share import ALL, Share
from trajkit.sources.files.texts import Line, json_of, lines_of, opened, read_whole, value_of
from trajkit.sources.files.walk import files_under, shown_path

LINES = (".jsonl", ".ndjson")
_ROWS_PER_BATCH = 64


def documents(root: Path, name: str, share: Share = ALL) -> Iterator[Found | Unread]:
    """Every document under a path.

    Args:
        root: A file or a folder.
        name: The format that they are of; one of another is a problem.
        share: Which of them; lines and rows of others are not parsed.
    """
    within = root if root.is_dir() else None
    for path in files_under(root) if within else [root]:
        place = shown_path(path, root)
        suffix = path.suffix.lower()
        if not share.has_file(place):
            continue
        if name == "sts" and suffix in LINES:
            if share.has(place):
                yield _attempt(place, lambda path=path: _session(path, within))  # type: ignore[misc]
        elif suffix in LINES and name != "sts":
            yield from _of_lines(path, place, name, within, share)
        elif suffix == ".json" and name != "sts":
            yield from _of_json(path, place, name, within, share)
        elif suffix == ".parquet" and name != "sts":
            yield from _of_table(path, place, name, within, share)
        elif share.has(place):
            yield Unread(suffix)


def _attempt(place: str, read: Callable[[], tuple[Reading | Rows, bytes]]) -> Found:
    try:
        reading, key = read()
    except BadDocument as error:
        return Found(place, problem=error.problem)
    return Found(place, reading, key)


def _read(value: Any, name: str) -> Reading | Rows:
    kind = kind_named(name)
    if not kind.is_one(value):
        other = kind_of(value)
        raise BadDocument(f"{other} and not {name}" if other else f"not {name}")
    rows = kind.rows(value) if kind.rows is not None else None
    return kind.read(value) if rows is None else rows


def _of_lines(path: Path, place: str, name: str, within: Path | None, share: Share) -> Iterator[Found]:
    try:
        with opened(path, within) as file:
            for line in lines_of(file):
                if share.has(f"{place}:{line.number}"):
                    yield line_document(line, place, name)
    except BadDocument as error:
        if share.has(place):
            yield Found(place, problem=error.problem)


def line_document(line: Line, place: str, name: str) -> Found:
    """The document in a line of a file, of a format of JSON values."""
    return _attempt(f"{place}:{line.number}", lambda: (_read(value_of(line), name), line.data))


def _of_json(path: Path, place: str, name: str, within: Path | None, share: Share) -> Iterator[Found]:
    """A document, or (LLaMA-Factory) an array of them."""
    try:
        data = read_whole(path, within)
        value = json_of(data, is_last_line=True)
    except BadDocument as error:
        if share.has(place):
            yield Found(place, problem=error.problem)
        return
    if not isinstance(value, list):
        if share.has(place):
            yield _attempt(place, lambda: (_read(value, name), data))
        return
    for number, one in enumerate(value, 1):
        if not share.has(f"{place}:{number}"):
            continue

        def read(one: Any = one) -> tuple[Reading | Rows, bytes]:
            return _read(one, name), json.dumps(one).encode()

        yield _attempt(f"{place}:{number}", read)


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
                raise BadDocument(f"{other} and not sts" if other else "not sts")
            if not isinstance(value, dict):
                raise BadDocument("not an object", f"line {line.number}")
            lines.append(value)
            texts.append(line.data)
    if not lines:
        raise BadDocument("empty")
    return read_sts(lines), b"\n".join(texts)


def _of_table(path: Path, place: str, name: str, within: Path | None, share: Share) -> Iterator[Found]:
    """The rows of a Parquet file."""
    try:
        with opened(path, within) as raw, pq.ParquetFile(raw) as file:
            number = 0
            for batch in file.iter_batches(_ROWS_PER_BATCH):
                fields = [(field.name, field.type) for field in batch.schema]
                for row in batch.to_pylist():
                    number += 1
                    if not share.has(f"{place}:{number}"):
                        continue

                    def read(row: Any = row, fields: Any = fields) -> tuple[Reading | Rows, bytes]:
                        value = {key: _decoded(row[key], kind) for key, kind in fields}
                        text = json.dumps(value)
                        if len(text) > MOST_BYTES:
                            raise BadDocument(f"longer than {MOST_BYTES // 1_000_000} MB")
                        return _read(_without_nulls(value), name), text.encode()

                    yield _attempt(f"{place}:{number}", read)
    except BadDocument as error:
        if share.has(place):
            yield Found(place, problem=error.problem)
    except (pa.ArrowException, OSError) as error:
        text = str(error).partition("\n")[0]
        if share.has(place):
            problem = BadDocument("not a Parquet file that can be read", value=text).problem
            yield Found(place, problem=problem)


def _decoded(value: Any, kind: Any) -> Any:
    """The value of a cell as JSON, its JSON columns parsed, wherever they are in it."""
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
        case float() | Decimal():  # infinity is no number of JSON
            return float(value) if math.isfinite(value) else str(value)
        case datetime.date() | datetime.time():
            return value.isoformat()
        case bytes():  # of pictures and sounds
            return {"n_bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
        case _:
            return str(value)


def _without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    """A row whose messages lack what is null: in a table every message has every field."""
    return {name: _bare(item) if name in _OF_MESSAGES else item for name, item in value.items()}


_OF_MESSAGES = ("messages", "prompt", "completion", "conversations")


def _bare(messages: Any) -> Any:
    if not isinstance(messages, list):
        return messages
    return [
        {name: item for name, item in one.items() if item is not None or name == "content"}
        if isinstance(one, dict)
        else one
        for one in messages
    ]
