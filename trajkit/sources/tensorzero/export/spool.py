"""Keep the rows that a database streams on disk, by bucket of episodes, until the bucket is assembled.

The files are Arrow with lz4, fast rather than small. Every column can be read by itself: the wide texts of a
bucket are read only while that bucket is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trajkit.sources.tensorzero.connect.slot import slots_of

_WAITING_ROWS = 16_384
"""Approximate maximum of buffered rows of all buckets together."""
_WAITING_BYTES = 32_000_000
"""Approximate maximum of buffered bytes of all buckets together: long texts are written sooner."""

Weigh = Callable[[pa.RecordBatch], int]
"""Counts some of the bytes of a batch."""


class Size(NamedTuple):
    """The size of some rows."""

    n_rows: int
    n_bytes: int
    """In memory."""
    n_held: int
    """Those of them that a reader holds in memory at once."""


def total(sizes: Iterable[Size]) -> Size:
    """How much all of these rows are."""
    return Size(*map(sum, zip(Size(0, 0, 0), *sizes, strict=True)))


class Spool:
    """A table cut into buckets, one file each.

    Args:
        folder: Where the files go.
        name: The table's name.
        schema: Its columns; `bucket` among them says where a row belongs.
        n_buckets: How many there are.
        weigh: The bytes of a bucket that its reader will hold in memory at once.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        schema: pa.Schema,
        n_buckets: int,
        weigh: Weigh = lambda batch: batch.nbytes,
    ) -> None:
        self.schema = schema
        self._folder = folder
        self._name = name
        self._weigh = weigh
        self._sizes = [Size(0, 0, 0)] * n_buckets

    def path(self, number: int) -> Path:
        """The file of one bucket."""
        return self._folder / f"{self._name}-{number:05}.arrow"

    @property
    def n_buckets(self) -> int:
        """How many there are."""
        return len(self._sizes)

    def size(self, number: int) -> Size:
        """How much one bucket is."""
        return self._sizes[number]

    def replace(self, number: int, batches: Iterator[pa.RecordBatch]) -> None:
        """Rewrite one bucket."""
        beside = self.path(number).with_suffix(".new")
        with _BucketFile(beside, self.schema, self._weigh) as file:
            _write([file], batches, lambda batch: [(0, batch)])
        beside.replace(self.path(number))
        self._sizes[number] = file.size

    def fill(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Write all batches."""
        with contextlib.ExitStack() as stack:
            files = [
                stack.enter_context(_BucketFile(self.path(number), self.schema, self._weigh))
                for number in range(self.n_buckets)
            ]
            _write(files, batches, self._cut)
        self._sizes = [file.size for file in files]

    def _cut(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self.n_buckets == 1:
            yield 0, batch
            return
        sorted_batch = batch.take(pc.sort_indices(batch.column("bucket")))
        start = 0
        for entry in pc.value_counts(sorted_batch.column("bucket")):
            n_rows = entry["counts"].as_py()
            yield entry["values"].as_py(), sorted_batch.slice(start, n_rows)
            start += n_rows


class Group:
    """Neighbouring buckets of a spool, whose rows are numbered together from 0.

    Args:
        spool: Their spool.
        numbers: Their numbers.
        row_name: Name of the column that counts.
    """

    def __init__(self, spool: Spool, numbers: Sequence[int], row_name: str) -> None:
        self._spool = spool
        self.numbers = numbers
        self._row_name = row_name
        ends = np.cumsum([0, *(spool.size(number).n_rows for number in numbers)])
        self._first_row: dict[int, int] = dict(zip(numbers, ends.tolist(), strict=False))
        self._n_rows = int(ends[-1])

    def first_row(self, number: int) -> int:
        """The number of a bucket's first row."""
        return self._first_row[number]

    @property
    def slots(self) -> tuple[int, int]:
        """The first and the last slot of its episodes."""
        n_buckets = self._spool.n_buckets
        return slots_of(self.numbers[0] + 1, n_buckets)[0], slots_of(self.numbers[-1] + 1, n_buckets)[1]

    @property
    def size(self) -> Size:
        """How much its rows are."""
        return total(self._spool.size(number) for number in self.numbers)

    @property
    def bytes_per_row(self) -> float:
        """Average size of its rows."""
        return self.size.n_bytes / max(self._n_rows, 1)

    def table(self, names: Sequence[str]) -> pa.Table:
        """These columns of every row, and the column that counts."""
        # in one piece, because every piece costs its reader time
        table = pa.concat_tables(self._read(number, names) for number in self.numbers).combine_chunks()
        return table.append_column(self._row_name, row_numbers(0, self._n_rows))

    def stream(self, names: Sequence[str]) -> pa.RecordBatchReader:
        """The same a few rows at a time, once: for columns that are too wide to be held all together."""
        fields = [self._spool.schema.field(name) for name in names]
        schema = pa.schema([*fields, pa.field(self._row_name, pa.int64())])
        return pa.RecordBatchReader.from_batches(schema, self._batches(names, schema))

    def column(self, number: int, name: str) -> pa.ChunkedArray[Any]:
        """One column of one bucket, in pieces."""
        return self._read(number, [name]).column(name)

    def has_column(self, name: str) -> bool:
        """Whether its rows have a column."""
        return name in self._spool.schema.names

    def flags(self, number: int, name: str) -> NDArray[np.bool_]:
        """A column of flags of one bucket; all false when there is no such column."""
        if not self.has_column(name):
            return np.zeros(self._spool.size(number).n_rows, dtype=np.bool_)
        column: Any = self.column(number, name)  # the stubs know no value to fill in
        return cast("NDArray[np.bool_]", column.fill_null(False).to_numpy())

    def numbers_of(self, number: int, name: str) -> NDArray[Any]:
        """A column of whole numbers of one bucket, 0 for null; empty when there is no such column."""
        if not self.has_column(name):
            return np.zeros(0)
        column: Any = self.column(number, name)
        return cast("NDArray[Any]", column.fill_null(0).to_numpy())

    def texts(self, number: int, name: str) -> pa.Array[Any]:
        """One column of one bucket, in one piece, with offsets of 64 bits: it may have more than 2 GiB."""
        kind = self._spool.schema.field(name).type
        goal = pa.large_string() if pa.types.is_string(kind) else kind
        return cast("pa.Array[Any]", self.column(number, name).cast(goal).combine_chunks())

    def drop(self) -> None:
        """Remove the files."""
        for number in self.numbers:
            self._spool.path(number).unlink(missing_ok=True)

    def _batches(self, names: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        start = 0
        for number in self.numbers:
            for batch in self._read(number, names).to_batches():
                rows = row_numbers(start, batch.num_rows)
                start += batch.num_rows
                yield pa.RecordBatch.from_arrays([*batch.columns, rows], schema=schema)

    def _read(self, number: int, names: Sequence[str]) -> pa.Table:
        places = sorted(self._spool.schema.get_field_index(name) for name in names)
        options = pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)
        with pa.ipc.open_file(str(self._spool.path(number)), options=options) as reader:
            return reader.read_all().select(list(names))


def row_numbers(start: int, n_rows: int) -> pa.Array[Any]:
    """Numbers that count from a start."""
    # not from numpy: for its first array pyarrow imports more of numpy
    made: pa.Array[Any] = pa.arange(start, start + n_rows)  # type: ignore[attr-defined]  # older stubs
    return made


class _BucketFile:
    """One file, written in large batches; complete when the block ends without an error."""

    def __init__(self, path: Path, schema: pa.Schema, weigh: Weigh) -> None:
        self._file = path.open("wb")
        # two tables are written in parallel: also distributing columns costs more than it saves
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        self._writer = pa.ipc.new_file(self._file, schema, options=options)
        self._weigh = weigh
        self._waiting: list[pa.RecordBatch] = []
        self.size = Size(0, 0, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
                self._writer.close()
        finally:
            self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add some rows to the buffer."""
        self._waiting.append(batch)

    def flush(self) -> None:
        """Write the buffered rows."""
        if not self._waiting:
            return
        table, self._waiting = pa.Table.from_batches(self._waiting).combine_chunks(), []
        for batch in table.to_batches():
            self.size = total([self.size, Size(batch.num_rows, batch.nbytes, self._weigh(batch))])
            self._writer.write_batch(batch)


def _write(
    files: Sequence[_BucketFile],
    batches: Iterator[pa.RecordBatch],
    cut: Callable[[pa.RecordBatch], Iterable[tuple[int, pa.RecordBatch]]],
) -> None:
    """Write batches, each divided among the files."""
    n_rows = n_bytes = 0
    for batch in batches:
        for number, part in cut(batch):
            files[number].add(part)
        n_rows += batch.num_rows
        n_bytes += batch.nbytes
        # all at once: a buffered part keeps its whole batch in memory
        if n_rows >= _WAITING_ROWS or n_bytes >= _WAITING_BYTES:
            for file in files:
                file.flush()
            n_rows = n_bytes = 0
