"""Read the files of an archive as tables, in rows or Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import duckdb
import pyarrow as pa

from trajkit.errors import StoreError
from trajkit.sources.tensorzero.archive.layout import TABLES
from trajkit.sources.tensorzero.archive.local import connect_to, create_view
from trajkit.sources.tensorzero.archive.manifest import read_manifest
from trajkit.sources.tensorzero.connect.dialect import Values
from trajkit.sources.tensorzero.export.read_sql import read_sql
from trajkit.store.engine import first_line

_BATCH_ROWS = 2048


class ArchiveFiles:
    """An archive, open for queries over its tables and over what `sql/archive.sql` makes of them.

    Args:
        folder: The archive.

    Raises:
        StoreError: It is not an archive, is of a newer version, or a file is missing or of another size.
    """

    def __init__(self, folder: Path) -> None:
        self.manifest = read_manifest(folder)
        self.shown = str(self.manifest.source.get("url"))
        self._folder = folder
        self._connection = connect_to()
        for table in TABLES:
            create_view(self._connection, table, self.paths(table.name))
        self._connection.execute(read_sql("archive"))

    def close(self) -> None:
        """Close them."""
        self._connection.close()

    def paths(self, table: str) -> list[Path]:
        """Return the files of a table."""
        return [self._folder / part.path for part in self.manifest.parts_of(table)]

    def has(self, table: str, column: str | None = None) -> bool:
        """Whether there is a table with a column: an archive has all, perhaps without rows."""
        return True

    def query(self, sql: str, values: Values | None = None) -> list[tuple[Any, ...]]:
        """Return a small answer; the values are bound by name."""
        try:
            with self._connection.cursor() as cursor:
                return cursor.execute(sql, dict(values or {})).fetchall()
        except duckdb.Error as error:
            raise self._failed(error) from error

    def stream(
        self, sql: str, schema: pa.Schema, values: Values | None = None, *, chosen: pa.Table | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield an answer of any size as batches; a further column marks the texts that were not UTF-8."""
        with self._connection.cursor() as cursor:
            if chosen is not None:
                cursor.register("chosen", chosen)
            try:
                reader = cursor.sql(sql, params=dict(values or {})).to_arrow_reader(_BATCH_ROWS)
                for batch in reader:
                    yield _cast(batch, schema)
            except (duckdb.Error, pa.ArrowException) as error:
                raise self._failed(error) from error

    def _failed(self, error: Exception) -> StoreError:
        return StoreError(
            f"the archive {self._folder} cannot be read: {first_line(error)}",
            hint="`trajkit archive verify` finds a damaged file",
        )


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = batch.columns[: len(schema)]
    if batch.num_columns > len(schema) and (marks := batch.column(len(schema))).null_count < len(marks):
        columns = _as_it_came(columns, schema.names, marks)
    return pa.RecordBatch.from_arrays(
        [_fitted(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def _fitted(column: pa.Array[Any], goal: pa.DataType) -> pa.Array[Any]:
    if column.type == goal:
        return column
    if pa.types.is_map(goal) and pa.types.is_list(column.type):
        pairs: Any = column
        keys, values = pairs.values.field("key"), pairs.values.field("value")
        return cast("pa.Array[Any]", pa.MapArray.from_arrays(pairs.offsets, keys, values))
    return column.cast(goal)


_SHOWN, _NO_UTF8 = "\ufffd".encode(), b"\xff"
"""The replacement of an unreadable byte in the archive, and a byte that is never UTF-8, which decodes to the
replacement again. So an export notices such a text as well."""


def _as_it_came(columns: Sequence[pa.Array[Any]], names: Sequence[str], marks: Any) -> list[pa.Array[Any]]:
    """Restore invalid UTF-8 in texts, and in lists of `key` and `value`, where it was.

    Args:
        columns: The columns.
        names: Their names.
        marks: For each row the names of the columns that were not UTF-8, null for none.
    """
    rows_by_name: dict[str, list[int]] = {}
    for row, marked in enumerate(marks.to_pylist()):
        for name in marked or ():
            rows_by_name.setdefault(name, []).append(row)
    return [
        _spoiled(column, rows_by_name[name]) if name in rows_by_name else column
        for name, column in zip(names, columns, strict=True)
    ]


def _spoiled(column: Any, rows: list[int]) -> pa.Array[Any]:
    if pa.types.is_list(column.type):
        offsets = column.offsets.to_pylist()
        of_items = [item for row in rows for item in range(offsets[row], offsets[row + 1])]
        pairs: Any = column.values
        keys, values = (_spoiled(pairs.field(name), of_items) for name in ("key", "value"))
        struct = pa.StructArray.from_arrays([keys, values], names=["key", "value"])
        return pa.ListArray.from_arrays(column.offsets, struct)
    texts = column.cast(pa.binary()).to_pylist()
    for row in rows:
        texts[row] = texts[row].replace(_SHOWN, _NO_UTF8)
    return pa.array(texts, pa.binary()).view(pa.string())
