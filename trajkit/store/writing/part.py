"""Write one Parquet file of a store batch by batch: DuckDB makes the rows, pyarrow writes them.

pyarrow writes wide texts several times faster than DuckDB's COPY (measured: bench/export.py).
"""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trajkit._core.address import readable
from trajkit.errors import StoreError
from trajkit.schema import Metric
from trajkit.store.engine import first_line, writing
from trajkit.store.layout import CONTENT_HASH, Column, columns

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
# Columns with few distinct values, which dictionary encoding makes small; it does not help for long texts.
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
    """Return the Arrow types of a table's columns."""
    return pa.schema({column.name: arrow_type(column) for column in (*columns(table, metrics), *extra)})


def refuse_other_columns(path: Path, table: str, metrics: Sequence[Metric], n_rows: int) -> None:
    """Refuse a file that lacks a column of its table or has one of another type; only its footer is read.

    Args:
        path: The file, from any writer.
        table: The table that it is a part of.
        metrics: The store's metrics.
        n_rows: How many rows it must have.

    Raises:
        StoreError: It is not Parquet, or not such a part; the message names the file and the column.
    """
    try:
        with pq.ParquetFile(readable(path)) as file:
            found, n_found = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _refused(f"{path} is not Parquet that can be read: {first_line(error)}") from error
    if n_found != n_rows:
        raise _refused(f"{path} has {n_found} rows; the manifest says {n_rows}")
    for field in arrow_schema(table, metrics, (CONTENT_HASH,) if table == "episodes" else ()):
        at = found.get_field_index(field.name)  # -1 also if two columns have the name
        if at < 0:
            raise _refused(f"{path} has no column {field.name}")
        if not _is_like(kind := found.field(at).type, field.type):
            raise _refused(f"{path}: the column {field.name} holds {kind}, not {field.type}")


@functools.lru_cache(maxsize=256)
def refuse_twice(paths: tuple[Path, ...], sums: tuple[str, ...]) -> None:
    """Refuse episodes without an id, and repeated ids: steps and feedback are joined by it.

    Args:
        paths: The parts of `episodes`.
        sums: Their checksums, so that the cache of this process skips unchanged parts.

    Raises:
        StoreError: There is such an episode; the message names the file and the row.
    """
    seen: list[pa.Array[Any]] = []
    for path in paths:
        try:
            with pq.ParquetFile(readable(path)) as file:  # pq.read_table loads pandas
                column: Any = file.read(["episode_id"]).column(0).cast(pa.large_string())
        except (pa.ArrowException, OSError) as error:
            raise _refused(f"{path} is not Parquet that can be read: {first_line(error)}") from error
        if column.null_count or pc.min(pc.binary_length(column)).as_py() == 0:
            row = next(at for at, episode_id in enumerate(column.to_pylist()) if not episode_id)
            raise _refused(f"{path}, row {row}: episode_id is null or empty")
        seen += column.chunks
    ids: Any = pa.chunked_array(seen, pa.large_string())
    if pc.count_distinct(ids).as_py() != len(ids):
        twice = next(each for each in pc.value_counts(ids).to_pylist() if each["counts"] > 1)
        raise _refused(f"{paths[0].parent} has the episode {twice['values']!r} {twice['counts']} times")


def _refused(message: str) -> StoreError:
    return StoreError(message, hint="something other than trajkit wrote this part: build the store again")


def _is_like(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of one type is one of another, also if another writer names types differently."""
    kinds = pa.types
    if isinstance(wanted, pa.StructType):
        return isinstance(found, pa.StructType) and all(
            (at := found.get_field_index(field.name)) >= 0 and _is_like(found.field(at).type, field.type)
            for field in wanted
        )
    if isinstance(wanted, pa.ListType):
        return (kinds.is_list(found) or kinds.is_large_list(found)) and _is_like(
            found.value_type, wanted.value_type
        )
    if isinstance(found, pa.DictionaryType):
        return _is_like(found.value_type, wanted)
    if isinstance(wanted, pa.JsonType) or kinds.is_string(wanted):
        texts = (kinds.is_string, kinds.is_large_string, kinds.is_string_view)
        return isinstance(found, pa.JsonType) or any(is_text(found) for is_text in texts)
    if kinds.is_int64(wanted):
        return kinds.is_integer(found) and not kinds.is_uint64(found)
    if kinds.is_float64(wanted):
        return kinds.is_floating(found) or kinds.is_integer(found)
    return kinds.is_timestamp(found) if kinds.is_timestamp(wanted) else found == wanted


def arrow_type(column: Column) -> pa.DataType:
    """Return the Arrow type of a column."""
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
    *,
    is_alone: bool = True,
) -> int:
    """Write one file.

    Args:
        path: The file.
        schema: Its columns.
        batches: Its rows.
        finished: Adds the last columns to each batch, in order.
        is_alone: Whether no other part is written at the same time: then a thread writes one batch while the
            next gets its last columns.

    Returns:
        The number of rows.

    Raises:
        StoreError: The disk is full, or the folder is not writable.
        DataError: A value does not fit its column.
    """
    n_rows = 0
    repeating = [name for name in _REPEATING if name in schema.names]
    with (
        writing(path),
        pq.ParquetWriter(
            path,
            schema,
            compression="zstd",
            use_dictionary=repeating,  # type: ignore[arg-type]  # the stubs know only a bool
            write_statistics=[name for name in _SEARCHED if name in schema.names],
        ) as writer,
        _behind() if is_alone else contextlib.nullcontext(_at_once) as do,
    ):

        def take(batch: pa.RecordBatch) -> None:
            columns = [_cast(batch.column(field.name), field.type) for field in schema]
            fitted = pa.RecordBatch.from_arrays(columns, schema=schema)
            writer.write_batch(fitted, row_group_size=ROW_GROUP_ROWS)

        for batch in batches:
            do(functools.partial(take, finished(batch)))
            n_rows += batch.num_rows
    return n_rows


_Work = Callable[[], None]


def _at_once(work: _Work) -> None:
    work()


@contextlib.contextmanager
def _behind() -> Iterator[Callable[[_Work], None]]:
    """Run tasks one after another in a thread; their errors are raised here."""
    with ThreadPoolExecutor(1) as pool:
        pending: Future[None] | None = None

        def submit(work: _Work) -> None:
            nonlocal pending
            if pending is not None:
                pending.result()
            pending = pool.submit(work)

        yield submit
        if pending is not None:
            pending.result()


def _cast(array: pa.Array[Any], goal: pa.DataType) -> pa.Array[Any]:
    if array.type == goal:
        return array
    if isinstance(goal, pa.JsonType):
        storage = array.storage if isinstance(array, pa.ExtensionArray) else array
        return pa.ExtensionArray.from_storage(goal, storage.cast(goal.storage_type))
    return array.cast(goal)


class Late(NamedTuple):
    """Wide columns of `steps` that bypass DuckDB: they are computed for each batch of ordered rows."""

    keys: tuple[str, ...]
    """Columns of the relation that are passed to `fill` and not stored."""
    order: tuple[str, ...]
    """Keys to order the rows by first; the rows of an episode have equal ones."""
    fill: Callable[[pa.RecordBatch], Mapping[str, pa.Array[Any]]]
    """Returns texts by column, for the rows of a batch that has the keys and all other columns. Texts of
    closed columns must be spelled as in the store."""
    most_rows: int = 2**31
    """Rows that are filled and written at a time: a few long texts can use a lot of memory."""
    spelled: tuple[str, ...] = ()
    """Other JSON columns that the relation has as valid text; closed ones must be spelled as in the store."""
    absent: tuple[str, ...] = ()
    """Columns that the relation may lack: null in every row, unless `fill` returns them."""

    def cut(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches in pieces of `most_rows`."""
        for batch in batches:
            for start in range(0, batch.num_rows, self.most_rows):
                yield batch.slice(start, self.most_rows)

    def filled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the columns of `fill`."""
        made, names = self.fill(batch), batch.schema.names
        return pa.RecordBatch.from_arrays([made.get(name, batch.column(name)) for name in names], names=names)


class Rows(NamedTuple):
    """The rows of some whole episodes, each table in its order, and the function for their last columns."""

    batches: Mapping[str, Iterable[pa.RecordBatch]]
    late: Late | None

    def held(self) -> Rows:
        """Return the same rows, read into memory: the connection behind them may be closed."""
        return self._replace(batches={table: list(batches) for table, batches in self.batches.items()})

    def released(self) -> Rows:
        """Return the same rows, readable once: no batch is kept after it was read."""
        return self._replace(batches={table: _taken(batches) for table, batches in self.batches.items()})


def _taken(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting = deque(batches)
    while waiting:
        yield waiting.popleft()
