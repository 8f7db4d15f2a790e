"""What a database streams, kept on disk by bucket of episodes until its turn comes.

It is Parquet, quick rather than small.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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
        writers = [_BucketFile(self.path(number), self._schema) for number in range(self._n_buckets)]
        n_rows = 0
        try:
            for batch in batches:
                n_rows += batch.num_rows
                for number, part in self._cut(batch):
                    writers[number].add(part)
        finally:
            for writer in writers:
                writer.close()
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
    """One file, written in row groups that are worth reading."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        # lz4 costs next to nothing; dictionaries and statistics would be made for a file that is read once
        self._writer = pq.ParquetWriter(
            path, schema, compression="lz4", use_dictionary=False, write_statistics=False
        )
        self._waiting: list[pa.RecordBatch] = []
        self._n_waiting = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._n_waiting += batch.num_rows
        if self._n_waiting >= _FLUSH_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
            self._waiting, self._n_waiting = [], 0
