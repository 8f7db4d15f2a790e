"""One Parquet file of a store, written batch by batch: DuckDB makes the rows, pyarrow writes them.

pyarrow writes these wide texts several times faster than DuckDB's COPY does (measured: bench/export.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from trajkit.schema import Metric
from trajkit.store.engine import writing
from trajkit.store.layout import Column, columns

ROW_GROUP_ROWS = 4096
"""Rows of a row group: small enough to read one episode cheaply, large enough to compress."""

_SCALARS: dict[str, pa.DataType] = {
    "VARCHAR": pa.string(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMPTZ": pa.timestamp("us", tz="UTC"),
    "JSON": pa.json_(pa.string()),
}
# Few different values: a dictionary makes them small. For the long texts it would only be tried and given up.
_REPEATING = (
    "episode_id",
    "source",
    "env_id",
    "task",
    "purpose",
    "outcome",
    "function_name",
    "variant_name",
    "model_name",
    "action",
    "action_executed",
    "finish_reason",
    "mask_reason",
    "snapshot_hash",
    "model_version",
    "agent_name",
    "kind",
    "metric_name",
)
_SEARCHED = ("episode_id", "step_index", "inference_id", "feedback_id")


def arrow_schema(table: str, metrics: Sequence[Metric], extra: Sequence[Column] = ()) -> pa.Schema:
    """The Arrow types of a table's columns."""
    return pa.schema(
        [(column.name, _arrow_type(column, metrics)) for column in (*columns(table, metrics), *extra)]
    )


def _arrow_type(column: Column, metrics: Sequence[Metric]) -> pa.DataType:
    if column.sql_type.endswith("[]"):
        return pa.list_(_SCALARS[column.sql_type.removesuffix("[]")])
    if column.sql_type.startswith("STRUCT"):
        described = duckdb.sqltype(column.sql_type).children
        return pa.struct([(name, _SCALARS[str(kind)]) for name, kind in described])
    return _SCALARS[column.sql_type]


def write_part(
    path: Path,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    finished: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch,
) -> int:
    """Write one file.

    Args:
        path: The file.
        schema: Its columns.
        batches: Its rows.
        finished: Gives each batch, in order, its last columns, while another thread writes the one before.

    Returns:
        The number of rows.

    Raises:
        StoreError: The disk is full, or the folder cannot be written.
        DataError: A value does not fit its column.
    """
    n_rows = 0
    repeating = [name for name in _REPEATING if name in schema.names]
    with (
        writing(path),
        ThreadPoolExecutor(1) as pool,
        pq.ParquetWriter(
            path,
            schema,
            compression="zstd",
            use_dictionary=repeating,  # type: ignore[arg-type]  # the stubs know only a bool
            write_statistics=[name for name in _SEARCHED if name in schema.names],
        ) as writer,
    ):

        def take(batch: pa.RecordBatch) -> None:
            writer.write_batch(_fitted(batch, schema), row_group_size=ROW_GROUP_ROWS)

        pending: Future[None] | None = None
        for batch in batches:
            whole = finished(batch)
            if pending is not None:
                pending.result()
            pending = pool.submit(take, whole)
            n_rows += batch.num_rows
        if pending is not None:
            pending.result()
    return n_rows


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of the schema, in its order and types."""
    return pa.RecordBatch.from_arrays(
        [_cast(batch.column(field.name), field.type) for field in schema], schema=schema
    )


def _cast(array: pa.Array[Any], goal: pa.DataType) -> pa.Array[Any]:
    if array.type == goal:
        return array
    if isinstance(goal, pa.JsonType):
        storage = array.storage if isinstance(array, pa.ExtensionArray) else array
        return pa.ExtensionArray.from_storage(goal, storage.cast(goal.storage_type))
    return array.cast(goal)
