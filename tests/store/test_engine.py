"""What DuckDB makes of a Ctrl-C is one again, whatever it was doing."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from trajkit.store.engine import connect, interruptible


def stopped() -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"number": [1]})
    raise KeyboardInterrupt


def test_ctrl_c_while_duckdb_asks_for_rows_is_ctrl_c() -> None:
    with connect() as connection:
        schema = pa.schema({"number": pa.int64()})
        connection.register("incoming", pa.RecordBatchReader.from_batches(schema, stopped()))
        with pytest.raises(KeyboardInterrupt), interruptible(connection):
            connection.execute("SELECT * FROM incoming").fetchall()


def test_another_error_of_duckdb_stays_what_it_is() -> None:
    with connect() as connection, pytest.raises(duckdb.ConversionException), interruptible(connection):
        connection.execute("SELECT 'KeyboardInterrupt'::INTEGER")
