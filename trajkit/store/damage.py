"""Find the first wrong value, by file, row and column, in a store whose checksums match.

Stores are read by columns, mostly without checking single values. So this runs only after a failure, and in
`info --check`.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from trajkit._core.address import readable
from trajkit.errors import DataError, StoreError
from trajkit.store.arrow import noun_of
from trajkit.store.engine import connect, first_line, scan
from trajkit.store.layout import TABLES
from trajkit.store.reader import LAST_OPENED, Store, verify
from trajkit.store.writing.check import check

_HINT = "something other than trajkit wrote or changed this store: build it again"
_ROWS = 256


def damage(store: Store) -> StoreError | None:
    """Return the first damage in a store; None without any. Reads everything, some rows at a time."""
    try:
        verify(store)
        for table in TABLES:
            for path in store.parts(table):
                _check_values(path, table)
        with connect() as connection:
            for table in TABLES:
                connection.execute(f"CREATE VIEW {table} AS SELECT * FROM {scan(store.parts(table))}")
            check(connection, store.manifest.metrics)
    except StoreError as error:
        return error
    except DataError as error:
        return StoreError(f"{store.path}: {error.message}", hint=_HINT)
    except duckdb.Error as error:
        return StoreError(f"{store.path} cannot be read: {first_line(error)}", hint=_HINT)
    return None


def last_damage() -> StoreError | None:
    """Return the damage in one of the stores that this process opened last; None without any."""
    for store in reversed(LAST_OPENED):
        # a temporary one is gone by now
        if store.path.is_dir() and (found := damage(store)) is not None:
            return found
    return None


def _check_values(path: Path, table: str) -> None:
    number = 0
    try:
        with pq.ParquetFile(readable(path)) as file:
            for batch in file.iter_batches(_ROWS):
                batch.validate(full=True)  # refuses texts that are not UTF-8
                for at in range(batch.num_rows):
                    noun_of(table, batch.slice(at, 1).to_pylist()[0])
                    number += 1
    except DataError as error:
        raise StoreError(f"{path}, row {number}: {error.message}", hint=_HINT) from error
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        OverflowError,
    ) as error:  # a year after 9999
        raise StoreError(f"{path}, row {number} or after it: {first_line(error)}", hint=_HINT) from error
