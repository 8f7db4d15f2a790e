"""What a database streams, kept on disk by bucket of episodes until its turn comes.

It is Parquet, quick rather than small.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_FLUSH_ROWS = 2048


class Spool:
    """A table cut into buckets, one file each.

    Args:
        folder: Where the files go.
        name: The table's name.
        schema: Its columns; `bucket` among them says where a row belongs.
        n_buckets: How many there are.
    """

    def __init__(self, folder: Path, name: str, schema: pa.Schema, n_buckets: int) -> None:
        self._folder = folder
        self._name = name
        self._schema = schema
        self._n_buckets = n_buckets

    def path(self, number: int) -> Path:
        """The file of one bucket."""
        return self._folder / f"{self._name}-{number:05}.parquet"

    def fill(self, batches: Iterator[pa.RecordBatch]) -> int:
        """Write everything that comes; return the number of rows."""
        n_rows = 0
        with contextlib.ExitStack() as stack:
            writers = [
                stack.enter_context(_BucketFile(self.path(number), self._schema))
                for number in range(self._n_buckets)
            ]
            for batch in batches:
                n_rows += batch.num_rows
                for number, part in self._cut(batch):
                    writers[number].add(part)
        return n_rows

    def _cut(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self._n_buckets == 1:
            yield 0, batch
            return
        sorted_batch = batch.take(pc.sort_indices(batch.column("bucket")))
        start = 0
        for entry in pc.value_counts(sorted_batch.column("bucket")):
            n_rows = entry["counts"].as_py()
            yield entry["values"].as_py(), sorted_batch.slice(start, n_rows)
            start += n_rows


class _BucketFile:
    """One file, written in row groups that are worth reading; whole when the block ends well."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        # lz4 costs next to nothing; dictionaries and statistics would be made for a file that is read once
        self._file = path.open("wb")
        self._writer = pq.ParquetWriter(
            self._file, schema, compression="lz4", use_dictionary=False, write_statistics=False
        )
        self._waiting: list[pa.RecordBatch] = []
        self._n_waiting = 0

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
            # a writer that failed would fail again, and louder, when it is collected
            self._writer.is_open = False
            self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._n_waiting += batch.num_rows
        if self._n_waiting >= _FLUSH_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
            self._waiting, self._n_waiting = [], 0
