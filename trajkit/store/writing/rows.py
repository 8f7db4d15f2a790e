"""The rows of whole episodes to write, and the wide columns that are computed last."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa


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
