"""Write Parquet files for the Hub: some hundred megabytes each, in row groups that its viewer can open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trajkit.store.engine import writing

GROUP_BYTES = 64_000_000
"""Bytes in memory of a row group; the viewer opens none of more than 286 MiB."""
GROUP_ROWS = 10_000
"""Maximum rows per row group."""
SHARD_BYTES = 400_000_000
"""Approximate size of a file."""
BATCH_ROWS = 1024
"""Rows that are read at a time."""


class Shard(NamedTuple):
    """A file that was written."""

    path: Path
    """Path of the file."""
    n_rows: int
    """Number of rows."""


class ShardWriter:
    """Writes one file. Use as a context manager; without rows there is no file.

    Args:
        path: The file.
        schema: Its columns.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._n_waiting = self._waiting_bytes = 0
        self.n_rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()
        if self._writer is not None:
            self._writer.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows with the columns of the schema, matched by name."""
        for piece in _pieces(batch, self._schema):
            too_much = (
                self._waiting_bytes + piece.nbytes > GROUP_BYTES
                or self._n_waiting + piece.num_rows > GROUP_ROWS
            )
            if self._waiting and too_much:
                self._flush()
            self._waiting.append(piece)
            self._n_waiting += piece.num_rows
            self._waiting_bytes += piece.nbytes
            self.n_rows += piece.num_rows

    @property
    def n_bytes(self) -> int:
        """Bytes in the file so far, without rows that wait for their row group."""
        return self.path.stat().st_size if self._writer is not None else 0

    def _flush(self) -> None:
        if not self._waiting:
            return
        with writing(self.path):
            if self._writer is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._writer = pq.ParquetWriter(
                    self.path,
                    self._schema,
                    compression="zstd",
                    write_page_index=True,
                    use_content_defined_chunking=True,
                )
            self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=self._n_waiting)
        self._waiting, self._n_waiting, self._waiting_bytes = [], 0, 0


def write_shards(
    folder: Path, stem: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> list[Shard]:
    """Write rows as files of about `SHARD_BYTES`, named `STEM-00000-of-00002.parquet`; none without rows."""
    written: list[Shard] = []
    batches = iter(batches)
    waiting = next(batches, None)
    while waiting is not None:
        with ShardWriter(folder / f".{stem}-{len(written)}", schema) as writer:
            while waiting is not None and writer.n_bytes < SHARD_BYTES:
                writer.add(waiting)
                waiting = next(batches, None)
        if writer.n_rows:
            written.append(Shard(writer.path, writer.n_rows))
    return named(folder, stem, written)


def named(folder: Path, stem: str, written: Iterable[Shard]) -> list[Shard]:
    """Give files their final names, which contain their number."""
    shards = list(written)
    found = []
    for number, shard in enumerate(shards):
        goal = folder / f"{stem}-{number:05}-of-{len(shards):05}.parquet"
        shard.path.rename(goal)
        found.append(Shard(goal, shard.n_rows))
    return found


def batches_of(paths: Iterable[Path]) -> Iterator[pa.RecordBatch]:
    """Read the rows of Parquet files, one file after another."""
    for path in paths:
        with contextlib.closing(pq.ParquetFile(path)) as file:
            yield from file.iter_batches(batch_size=BATCH_ROWS)


class RowReader:
    """Reads a Parquet file from its beginning, a number of rows at a time; JSON is read as text.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path)
        self._batches = self._file.iter_batches(batch_size=BATCH_ROWS)
        self._left: pa.RecordBatch | None = None
        self._schema = pa.schema(
            (field.name, field.type.storage_type if isinstance(field.type, pa.JsonType) else field.type)
            for field in self._file.schema_arrow
        )

    def take(self, n_rows: int) -> pa.Table:
        """Return the next rows, or fewer at the end of the file."""
        taken: list[pa.RecordBatch] = []
        while n_rows:
            batch = self._left if self._left is not None else next(self._batches, None)
            if batch is None:
                break
            piece, self._left = batch.slice(0, n_rows), batch.slice(n_rows)
            if not self._left.num_rows:
                self._left = None
            n_rows -= piece.num_rows
            taken.append(piece)
        texts = [
            pa.RecordBatch.from_arrays(
                [each.storage if isinstance(each, pa.ExtensionArray) else each for each in batch.columns],
                schema=self._schema,
            )
            for batch in taken
        ]
        return pa.Table.from_batches(texts, schema=self._schema)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def fitted(array: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Convert values to a type: missing fields of structs become null, and text becomes JSON."""
    if array.type == kind:
        return array
    if isinstance(kind, pa.JsonType):
        storage = array.storage if isinstance(array, pa.ExtensionArray) else array
        return pa.ExtensionArray.from_storage(kind, storage.cast(kind.storage_type))
    if pa.types.is_struct(kind):
        struct: Any = array
        fields = [field.name for field in struct.type]
        children = [
            fitted(struct.field(field.name), field.type)
            if field.name in fields
            else pa.nulls(len(array), field.type)
            for field in kind
        ]
        if not children:
            return pa.nulls(len(array), kind)
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if isinstance(kind, pa.ListType):
        many: Any = array
        inner = fitted(many.flatten(), kind.value_type)
        # flattening skips the values under nulls, so the offsets are computed again
        lengths = many.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        ends: Any = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        mask: Any = array.is_null()
        made: pa.Array[Any] = pa.ListArray.from_arrays(ends, inner, type=kind, mask=mask)
        return made
    return array.cast(kind)


def _pieces(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Return the rows in the columns of the schema, in pieces that fit a row group."""
    whole = pa.RecordBatch.from_arrays(
        [
            fitted(batch.column(field.name), field.type)
            if field.name in batch.schema.names
            else pa.nulls(batch.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )
    step = max(1, min(GROUP_ROWS, whole.num_rows * GROUP_BYTES // max(whole.nbytes, 1)))
    for start in range(0, whole.num_rows, step):
        yield whole.slice(start, step)
