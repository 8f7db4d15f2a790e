"""What an archive needs of a database: its tables as they are, as Arrow, and sums to compare them by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from trajkit.schema.base import JsonObject
from trajkit.sources.tensorzero.archive.layout import Table
from trajkit.sources.tensorzero.archive.manifest import Seen

_KEYS: dict[str, pa.DataType] = {"day": pa.int32(), "key": pa.string(), "number": pa.uint64()}
KEYS = pa.schema(_KEYS)
"""One row of a table in short: its day, its key, and the number that its content comes to."""


class Origin(Protocol):
    """A TensorZero database, read only, as it is archived.

    A row's day counts from 1970 by the time in its id; it is `WHOLE` in a table that is not cut into days.
    What the database has no table or column for is left out: nothing here raises for it.
    """

    def describe(self) -> JsonObject:
        """Where this is, without credentials; `deployment_id` among it where the database has one."""
        ...

    def keys_seen(self, table: Table) -> Mapping[int, Seen]:
        """Per day the rows, and the sum over their keys; over all that they hold in a table without days."""
        ...

    def content_seen(self, table: Table) -> Mapping[int, Seen]:
        """Per day the rows, and the sum over all that they hold; computed in the database."""
        ...

    def keys(self, table: Table, days: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Stream `KEYS` of these days."""
        ...

    def rows(self, table: Table, days: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Stream the rows of these days (`Table.travelling`), in no order."""
        ...

    def rows_of(self, table: Table, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the rows that have these keys (`Table.travelling`)."""
        ...

    def n_bytes(self, table: Table) -> int:
        """Roughly how many bytes of text the table holds; 0 when the database does not tell."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...
