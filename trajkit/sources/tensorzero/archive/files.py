"""The files of an archive as tables, and rows or Arrow batches out of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import duckdb
import pyarrow as pa

from trajkit.errors import StoreError
from trajkit.sources.tensorzero.archive.layout import TABLES
from trajkit.sources.tensorzero.archive.local import connect_to, create_view
from trajkit.sources.tensorzero.archive.manifest import read_manifest
from trajkit.sources.tensorzero.archive.raw_text import as_it_came
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
        self._folder = folder
        self._connection = connect_to()
        for table in TABLES:
            create_view(self._connection, table, self.paths(table.name))
        self._connection.execute(read_sql("archive"))

    def close(self) -> None:
        """Let go of them."""
        self._connection.close()

    def paths(self, table: str) -> list[Path]:
        """The files of a table."""
        return [self._folder / part.path for part in self.manifest.parts_of(table)]

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """A small answer; the parameters are bound by name."""
        try:
            with self._connection.cursor() as cursor:
                return cursor.execute(sql, dict(parameters or {})).fetchall()
        except duckdb.Error as error:
            raise self._failed(error) from error

    def stream(
        self,
        sql: str,
        schema: pa.Schema,
        parameters: Mapping[str, Any] | None = None,
        *,
        chosen: pa.Table | None = None,
        is_marked: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """An answer of any size as batches of this schema, its columns taken by place.

        Args:
            sql: The query; it may read `chosen`.
            schema: What comes out.
            parameters: Bound by name.
            chosen: A table of one column `episode_id`.
            is_marked: Whether one more column says which texts were not UTF-8.
        """
        with self._connection.cursor() as cursor:
            if chosen is not None:
                cursor.register("chosen", chosen)
            try:
                reader = cursor.sql(sql, params=dict(parameters or {})).to_arrow_reader(_BATCH_ROWS)
                for batch in reader:
                    yield _cast(batch, schema, is_marked=is_marked)
            except (duckdb.Error, pa.ArrowException) as error:
                raise self._failed(error) from error

    def _failed(self, error: Exception) -> StoreError:
        return StoreError(
            f"the archive {self._folder} cannot be read: {first_line(error)}",
            hint="`trajkit archive verify` finds a damaged file",
        )


def _cast(batch: pa.RecordBatch, schema: pa.Schema, *, is_marked: bool) -> pa.RecordBatch:
    columns = batch.columns[: len(schema)]
    if is_marked and (marks := batch.column(len(schema))).null_count < len(marks):
        columns = as_it_came(pa.RecordBatch.from_arrays(columns, names=schema.names), marks).columns
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
