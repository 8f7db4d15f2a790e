"""Write and read one Parquet file of an archive: rows of a database, with texts checked for UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from trajkit._core.address import readable
from trajkit.sources.tensorzero.archive.layout import NOT_UTF8, Kind, Table

_GROUP_ROWS = 16_384
_GROUP_BYTES = 32_000_000
"""Rows are buffered up to the size of a row group."""


class PartFile:
    """Writes one file, which is complete when the block ends without an error.

    Args:
        path: The file.
        table: The table of its rows.
    """

    def __init__(self, path: Path, table: Table) -> None:
        self._table = table
        self._writer = pq.ParquetWriter(
            path,
            table.schema,
            compression="zstd",
            use_dictionary=table.repeating,  # type: ignore[arg-type]  # the stubs know only a bool
            write_statistics=[column.name for column in table.columns if column.kind == Kind.ID],
        )
        self._waiting: list[pa.RecordBatch] = []
        self._n_rows = self._n_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            self._writer.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Write streamed rows (`Table.travelling`; the day may be missing)."""
        self.add_read(_arrived(batch, self._table))

    def add_read(self, batch: pa.RecordBatch) -> None:
        """Write rows of another file of this table (`Table.schema`)."""
        self._waiting.append(batch)
        self._n_rows += batch.num_rows
        self._n_bytes += batch.nbytes
        if self._n_rows >= _GROUP_ROWS or self._n_bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._n_rows:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._table.schema))
        self._waiting, self._n_rows, self._n_bytes = [], 0, 0


def read_part(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches."""
    with pq.ParquetFile(readable(path)) as file:
        yield from file.iter_batches(batch_size=2048)


def _arrived(batch: pa.RecordBatch, table: Table) -> pa.RecordBatch:
    columns: list[Any] = []
    strange: dict[int, list[dict[str, Any]]] = {}
    for column in table.columns:
        goal = table.schema.field(column.name).type
        values = batch.column(column.name)
        try:
            columns.append(values.cast(goal))
        except pa.ArrowInvalid:  # a text that is not UTF-8: rare, so the rows may be checked one by one
            columns.append(_mended(values, column.name, column.kind, goal, strange))
    marks: Any = [strange.get(row) for row in range(batch.num_rows)] if strange else pa.nulls(batch.num_rows)
    of_type = table.schema.field(NOT_UTF8).type
    columns.append(pa.array(marks, of_type) if strange else marks.cast(of_type))
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _mended(
    values: Any, name: str, kind: Kind, goal: pa.DataType, strange: dict[int, list[dict[str, Any]]]
) -> pa.Array[Any]:
    """Return the texts with U+FFFD for invalid bytes; the bytes of those rows go to `strange`."""
    found: list[Any] = []
    for row, value in enumerate(values.to_pylist()):
        text = _decoded(value, "replace")
        found.append(text)
        if _encoded(text) != value:
            strange.setdefault(row, []).append({"name": name, "bytes": spelled(value, kind)})
    if kind == Kind.TAGS:
        found = [None if pairs is None else [{"key": k, "value": v} for k, v in pairs] for pairs in found]
    return pa.array(found, goal)


def spelled(value: Any, kind: Kind) -> bytes:
    """Return a text that is not UTF-8, or several as one: each item has its length before it."""
    if kind == Kind.TEXTS:
        return b"".join(b"%d:%b" % (len(item), item) for item in value)
    if kind == Kind.TAGS:
        return b"".join(b"%d:%b" % (len(item), item) for pair in value for item in pair)
    return bytes(value)


def _decoded(value: Any, errors: str) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", errors)
    if isinstance(value, list | tuple):
        return type(value)(_decoded(item, errors) for item in value)
    return value


def _encoded(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, list | tuple):
        return type(value)(_encoded(item) for item in value)
    return value
