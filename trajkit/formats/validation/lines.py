"""Read the rows of a training file one at a time; a bad line becomes a flaw and never an exception."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from trajkit._core.address import readable
from trajkit.errors import DataError
from trajkit.formats.validation.finding import Flaw, kind_of, shown

BOM = b"\xef\xbb\xbf"
MAX_LINE_BYTES = 256_000_000
"""Longer lines are not parsed: that would take ten times their size in memory."""
_OTHER_ENCODINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_ROWS_PER_BATCH = 256


class Line(NamedTuple):
    """A line of a file, parsed."""

    number: int
    """From 1."""
    n_bytes: int
    """Including the line break."""
    row: dict[str, Any] | None
    """The object in it; None if there is none, and `flaws` has the reason."""
    flaws: tuple[Flaw, ...] = ()
    """Flaws of the line itself."""
    is_blank: bool = False
    raw: bytes | None = None
    """The bytes of a line that could not be parsed, if they are not too many."""


class _Twice(Exception):
    """A repeated key of an object."""


def has_bom(path: Path) -> bool:
    """Whether the file begins with UTF-8's byte order mark.

    Raises:
        DataError: It begins with the mark of another encoding.
    """
    with path.open("rb") as file:
        start = file.read(3)
    if (name := _OTHER_ENCODINGS.get(start[:2])) is not None:
        raise DataError(f"{path} is in {name}", hint="save it as UTF-8")
    return start == BOM


def read_lines(path: Path, is_wanted: Callable[[int], bool] = lambda number: True) -> Iterator[Line]:
    """Yield the lines of a JSONL file, or the rows of a Parquet file as lines.

    Args:
        path: The file.
        is_wanted: Whether a line is parsed and yielded, by its number.

    Raises:
        DataError: It is not a file of rows.
    """
    if path.suffix == ".parquet":
        yield from _parquet_rows(path, is_wanted)
        return
    with path.open("rb") as file:
        if file.read(len(BOM)) != BOM:
            file.seek(0)
        number = 0
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) > MAX_LINE_BYTES:
                line = _too_long(file, raw, number)
                if is_wanted(number):
                    yield line
            elif is_wanted(number):
                yield _line(raw, number)


def _too_long(file: BinaryIO, raw: bytes, number: int) -> Line:
    n_bytes = len(raw)
    while raw and not raw.endswith(b"\n"):
        raw = file.readline(MAX_LINE_BYTES)
        n_bytes += len(raw)
    hint = f"leave it out: at most {MAX_LINE_BYTES // 1_000_000} MB are read"
    return Line(number, n_bytes, None, (Flaw("the line is too long", "$", hint, f"{n_bytes / 1e6:,.0f} MB"),))


def _line(raw: bytes, number: int) -> Line:
    if not raw.strip():
        flaw = Flaw("blank line", "$", "remove it")
        return Line(number, len(raw), None, (flaw,), is_blank=True)
    try:
        row = parsed(raw)
    except UnicodeDecodeError as error:
        flaw = Flaw(
            "not UTF-8",
            "$",
            f"byte {error.start} of the line is not UTF-8",
            repr(raw[error.start : error.start + 4]),
        )
    except _Twice as error:
        flaw = Flaw("a repeated key", "$", "readers differ in which one they keep: remove one", str(error))
    except (ValueError, RecursionError) as error:
        flaw = _no_json(raw, error)
    else:
        if isinstance(row, dict):
            return Line(number, len(raw), row)
        flaw = Flaw("the line is not a JSON object", "$", f"it is {kind_of(row)}", shown(row))
    return Line(number, len(raw), None, (flaw,), raw=raw)


def parsed(raw: bytes) -> Any:
    """Parse the JSON of a line strictly: without NaN and repeated keys."""
    return json.loads(
        raw.decode("utf-8").rstrip("\r\n"), parse_constant=_refuse_constant, object_pairs_hook=_once
    )


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(shown(next(name for name in names if names.count(name) > 1)))
    return found


def _no_json(raw: bytes, error: Exception) -> Flaw:
    if isinstance(error, RecursionError):
        return Flaw("nested too deep", "$", "leave the row out")
    what = error.msg.removesuffix(" at") if isinstance(error, json.JSONDecodeError) else str(error)
    column = f" at character {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
    if not raw.endswith(b"\n"):
        return Flaw(
            "the last line is cut off", "$", "write the file again: it is incomplete", f"{what}{column}"
        )
    return Flaw("not JSON", "$", "one JSON object in each line", f"{what}{column}")


def _parquet_rows(path: Path, is_wanted: Callable[[int], bool]) -> Iterator[Line]:
    try:
        file = pq.ParquetFile(readable(path))
        is_json = [isinstance(field.type, pa.JsonType) for field in file.schema_arrow]
        number = 0
        for batch in file.iter_batches(batch_size=_ROWS_PER_BATCH):
            names = [name for name, is_text in zip(batch.schema.names, is_json, strict=True) if is_text]
            places = [place for place in range(batch.num_rows) if is_wanted(number + place + 1)]
            rows = batch if len(places) == batch.num_rows else batch.take(pa.array(places, pa.int64()))
            for place, row in zip(places, rows.to_pylist(), strict=True):
                yield _parquet_row(row, names, number + place + 1)
            number += batch.num_rows
    except pa.ArrowException as error:
        raise DataError(f"{path} is not a Parquet file: {error}") from error


def _parquet_row(row: dict[str, Any], json_names: list[str], number: int) -> Line:
    flaws = []
    for name in json_names:
        if row[name] is not None:
            try:
                row[name] = parsed(row[name].encode())
            except (ValueError, RecursionError, _Twice) as error:
                flaws.append(Flaw("not JSON", f"$.{name}", "write the column again", str(error)))
    # a null column stands for a missing key
    present = {name: _without_nulls(value) for name, value in row.items() if value is not None}
    return Line(number, 0, None if flaws else present, tuple(flaws))


def _without_nulls(value: Any) -> Any:
    """Remove null fields: Parquet's structs have every field in every row."""
    match value:
        case dict():
            return {name: _without_nulls(item) for name, item in value.items() if item is not None}
        case list():
            return [_without_nulls(item) for item in value]
        case _:
            return value
