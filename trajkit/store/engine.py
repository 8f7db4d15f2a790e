"""DuckDB as the store uses it: how a connection is made, and what its failures are called here."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb

from trajkit.errors import DataError, StoreError

_CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # else SQL text could name the caller's Python variables
}
# What the machine did, not the query.
_MACHINE = (
    duckdb.IOException,
    duckdb.OutOfMemoryException,
    duckdb.FatalException,
    duckdb.TransactionException,
)


def connect(
    *, memory_limit: str | None = None, threads: int | None = None, spill: Path | None = None
) -> duckdb.DuckDBPyConnection:
    """A connection to a new database in memory, in UTC, that loads no extension by itself.

    Args:
        memory_limit: Such as `1GB`; None leaves DuckDB's own (most of the machine).
        threads: None for one per core.
        spill: Folder for what does not fit; None for one in the system's temporary folder, removed on close.
    """
    connection = duckdb.connect(config=dict(_CONFIG))
    folder = spill or Path(tempfile.gettempdir()) / f"trajkit-spill-{secrets.token_hex(6)}"
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")
    connection.execute(f"SET temp_directory = {literal(str(folder))}")
    if memory_limit is not None:
        connection.execute(f"SET memory_limit = {literal(memory_limit)}")
    if threads is not None:
        connection.execute(f"SET threads = {int(threads)}")
    return connection


def literal(text: str) -> str:
    """A text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def scan(paths: list[Path]) -> str:
    """The SQL that reads these Parquet files in this order, with the file's name in `filename`."""
    names = ", ".join(literal(str(path)) for path in paths)
    return f"read_parquet([{names}], filename = true)"


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Make Ctrl-C during a query what it is elsewhere: DuckDB raises RuntimeError('Query interrupted')."""
    try:
        yield
    except RuntimeError as error:
        if "interrupted" in str(error).lower():
            raise KeyboardInterrupt from error
        raise


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say which path could not be written, or which value did not fit, instead of DuckDB's own words alone.

    Raises:
        StoreError: The disk is full, the folder is not writable, or the memory limit is too small.
        DataError: A value does not fit its column, or a column is missing.
    """
    try:
        with interruptible():
            yield
    except (*_MACHINE, OSError) as error:
        raise StoreError(
            f"{path} could not be written: {first_line(error)}",
            hint="is the disk full, or the folder read-only?",
        ) from error
    except (duckdb.ConversionException, duckdb.InvalidInputException, duckdb.BinderException) as error:
        raise DataError(f"{path.parent.name or path}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first line of a message, without the kind of error that DuckDB puts before it."""
    line = (str(error).splitlines() or [""])[0]
    kind, separator, rest = line.partition(" Error: ")
    return rest if separator and len(kind) < 30 else line
