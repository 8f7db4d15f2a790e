"""The files of an archive in DuckDB: its tables as views, and their sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from trajkit.sources.tensorzero.archive.checksum import DUCKDB, row_number
from trajkit.sources.tensorzero.archive.layout import Table
from trajkit.sources.tensorzero.archive.manifest import Seen
from trajkit.store.engine import connect, file_literal

_MEMORY_LIMIT = "1GB"


def connect_to(*, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Open a connection for an archive's files."""
    connection = connect(memory_limit=_MEMORY_LIMIT, threads=threads)
    connection.execute("SET preserve_insertion_order = false")
    return connection


def scan(paths: Sequence[Path]) -> str:
    """Return SQL that reads these files."""
    return f"read_parquet([{', '.join(map(file_literal, paths))}])"


def rows_seen(connection: duckdb.DuckDBPyConnection, table: Table, path: Path) -> Seen:
    """Return the rows of a file, and the sum over their keys; in a table without days, over whole rows.

    Args:
        connection: Of `connect_to`.
        table: The table of the file.
        path: The file.
    """
    number = DUCKDB.number.format(table.key) if table.is_dated else number_of(table)
    ((n_rows, total),) = connection.execute(
        f"SELECT count(*), {DUCKDB.total.format(number)} FROM {scan([path])}"
    ).fetchall()
    return Seen(int(n_rows), int(total or 0))


def number_of(table: Table) -> str:
    """Return SQL for the number of a row."""
    return row_number(table, DUCKDB, {column.name: f'"{column.name}"' for column in table.columns})


def load(
    connection: duckdb.DuckDBPyConnection, table: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> None:
    """Make a table from a stream of a database; errors of the stream are raised as they are."""
    connection.register("incoming", schema.empty_table())
    connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM incoming")
    for batch in batches:
        connection.register("incoming", pa.Table.from_batches([batch]))
        connection.execute(f"INSERT INTO {table} SELECT * FROM incoming")
    connection.unregister("incoming")


def create_view(connection: duckdb.DuckDBPyConnection, table: Table, paths: Sequence[Path]) -> None:
    """Make a view with a table's name; without files it has no rows."""
    if paths:
        connection.execute(f"CREATE VIEW {table.name} AS SELECT * FROM {scan(paths)}")
        return
    connection.register("nothing", table.schema.empty_table())
    connection.execute(f"CREATE TABLE {table.name} AS SELECT * FROM nothing")
    connection.unregister("nothing")
