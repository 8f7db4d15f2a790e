"""What a database streams, kept on disk by bucket of episodes until its turn comes.

It is Arrow with lz4, quick rather than small. Every column can be read by itself: the wide texts of a bucket
are looked at only while that bucket is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trajkit.sources.tensorzero.slot import slots_of

_WAITING_ROWS = 16_384
"""Most rows of all buckets together that wait in memory, more or less."""
_LEAST_ROWS = 64
_WAITING_BYTES = 64_000_000
"""Most bytes of all buckets together that wait, more or less: long texts are written sooner."""


class Spool:
    """A table cut into buckets, one file each.

    Args:
        folder: Where the files go.
        name: The table's name.
        schema: Its columns; `bucket` among them says where a row belongs.
        n_buckets: How many there are.
    """

    def __init__(self, folder: Path, name: str, schema: pa.Schema, n_buckets: int) -> None:
        self.schema = schema
        self._folder = folder
        self._name = name
        self._n_rows = [0] * n_buckets
        self._n_bytes = [0] * n_buckets

    def path(self, number: int) -> Path:
        """The file of one bucket."""
        return self._folder / f"{self._name}-{number:05}.arrow"

    @property
    def n_buckets(self) -> int:
        """How many there are."""
        return len(self._n_rows)

    def n_rows(self, number: int) -> int:
        """The rows of one bucket."""
        return self._n_rows[number]

    def n_bytes(self, number: int) -> int:
        """The bytes of one bucket in memory."""
        return self._n_bytes[number]

    def replace(self, number: int, batches: Iterator[pa.RecordBatch]) -> None:
        """Write one bucket anew."""
        beside = self.path(number).with_suffix(".new")
        n_rows = n_bytes = 0
        with _BucketFile(beside, self.schema, *self._limits()) as file:
            for batch in batches:
                n_rows += batch.num_rows
                n_bytes += file.add(batch)
        beside.replace(self.path(number))
        self._n_rows[number], self._n_bytes[number] = n_rows, n_bytes

    def fill(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Write everything that comes."""
        n_buckets = len(self._n_rows)
        limits = self._limits()
        with contextlib.ExitStack() as stack:
            writers = [
                stack.enter_context(_BucketFile(self.path(number), self.schema, *limits))
                for number in range(n_buckets)
            ]
            for batch in batches:
                for number, part in self._cut(batch):
                    self._n_rows[number] += part.num_rows
                    self._n_bytes[number] += writers[number].add(part)

    def _limits(self) -> tuple[int, int]:
        """The rows and bytes of one bucket that are worth writing."""
        n_buckets = len(self._n_rows)
        return max(_LEAST_ROWS, _WAITING_ROWS // n_buckets), _WAITING_BYTES // n_buckets

    def _cut(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        if len(self._n_rows) == 1:
            yield 0, batch
            return
        sorted_batch = batch.take(pc.sort_indices(batch.column("bucket")))
        start = 0
        for entry in pc.value_counts(sorted_batch.column("bucket")):
            n_rows = entry["counts"].as_py()
            yield entry["values"].as_py(), sorted_batch.slice(start, n_rows)
            start += n_rows


class Group:
    """Neighbouring buckets of a spool, whose rows are counted through from 0.

    Args:
        spool: Where they are.
        numbers: Which.
        row_name: Name of the column that counts.
    """

    def __init__(self, spool: Spool, numbers: Sequence[int], row_name: str) -> None:
        self._spool = spool
        self.numbers = numbers
        self._row_name = row_name
        ends = np.cumsum([0, *(spool.n_rows(number) for number in numbers)])
        self._first_row: dict[int, int] = dict(zip(numbers, ends.tolist(), strict=False))
        self._n_rows = int(ends[-1])

    def first_row(self, number: int) -> int:
        """What the rows of a bucket count from."""
        return self._first_row[number]

    @property
    def slots(self) -> tuple[int, int]:
        """The first and the last slot of its episodes."""
        n_buckets = self._spool.n_buckets
        return slots_of(self.numbers[0] + 1, n_buckets)[0], slots_of(self.numbers[-1] + 1, n_buckets)[1]

    @property
    def bytes_per_row(self) -> float:
        """How long its rows are, on average."""
        return sum(map(self._spool.n_bytes, self.numbers)) / max(self._n_rows, 1)

    def table(self, names: Sequence[str]) -> pa.Table:
        """These columns of every row, and the column that counts."""
        # in one piece: whoever reads it in pieces pays for each of them
        table = pa.concat_tables(self._read(number, names) for number in self.numbers).combine_chunks()
        return table.append_column(self._row_name, pa.array(np.arange(self._n_rows)))

    def stream(self, names: Sequence[str]) -> pa.RecordBatchReader:
        """The same a few rows at a time, once: for columns that are too wide to be held all together."""
        fields = [self._spool.schema.field(name) for name in names]
        schema = pa.schema([*fields, pa.field(self._row_name, pa.int64())])
        return pa.RecordBatchReader.from_batches(schema, self._batches(names, schema))

    def column(self, number: int, name: str) -> pa.ChunkedArray[Any]:
        """One column of one bucket, in pieces."""
        return self._read(number, [name]).column(name)

    def texts(self, number: int, name: str) -> pa.Array[Any]:
        """One column of one bucket, in one piece."""
        return _whole(self.column(number, name), self._spool.schema.field(name).type)

    def drop(self) -> None:
        """Remove the files."""
        for number in self.numbers:
            self._spool.path(number).unlink(missing_ok=True)

    def _batches(self, names: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        start = 0
        for number in self.numbers:
            for batch in self._read(number, names).to_batches():
                rows = pa.array(np.arange(start, start + batch.num_rows))
                start += batch.num_rows
                yield pa.RecordBatch.from_arrays([*batch.columns, rows], schema=schema)

    def _read(self, number: int, names: Sequence[str]) -> pa.Table:
        places = sorted(self._spool.schema.get_field_index(name) for name in names)
        options = pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)
        with pa.ipc.open_file(str(self._spool.path(number)), options=options) as reader:
            return reader.read_all().select(list(names))


def _whole(column: pa.ChunkedArray[Any], kind: pa.DataType) -> pa.Array[Any]:
    """A column in one piece, with offsets of 64 bits, as the texts of a bucket may be more than 2 GiB."""
    goal = pa.large_string() if pa.types.is_string(kind) else kind
    return cast("pa.Array[Any]", column.cast(goal).combine_chunks())


class _BucketFile:
    """One file, written in batches that are worth reading; whole when the block ends well."""

    def __init__(self, path: Path, schema: pa.Schema, flush_rows: int, flush_bytes: int) -> None:
        self._file = path.open("wb")
        # two tables are written side by side: to hand out single columns besides costs more than it brings
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        self._writer = pa.ipc.new_file(self._file, schema, options=options)
        self._flush_rows, self._flush_bytes = flush_rows, flush_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._n_rows = self._n_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
                self._writer.close()
        finally:
            self._file.close()

    def add(self, batch: pa.RecordBatch) -> int:
        """Take some rows; how many bytes they are."""
        n_bytes = batch.nbytes
        self._waiting.append(batch)
        self._n_rows += batch.num_rows
        self._n_bytes += n_bytes
        if self._n_rows >= self._flush_rows or self._n_bytes >= self._flush_bytes:
            self._flush()
        return n_bytes

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting).combine_chunks())
            self._waiting, self._n_rows, self._n_bytes = [], 0, 0
