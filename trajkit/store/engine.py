"""Connect to DuckDB as the store needs it, and translate its failures."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

from trajkit._core.address import opened
from trajkit._core.outside import json_from_outside
from trajkit._core.process.memory import is_own_process
from trajkit.errors import DataError, QueryError, StoreError

_CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # else SQL text could name the caller's Python variables
}
MEMORY_LIMIT = "2GB"
"""Memory limit of a connection, unless its command needs less: DuckDB spills to disk above it. Its own limit
is most of the machine, so that memory would grow with the rows."""
MOST_CHARACTERS = 100_000
"""Maximum characters of a user's SQL text or condition."""
DEEPEST = 100
"""Deepest nesting of expressions in such a text."""

_GRACE_S = 10.0
_PYTHON_ERROR = re.compile(r"[\w.]+(Error|Exception): ")
_PATTERN = re.compile(r"[*?\[]")
# Failures of the machine, not of the query.
_MACHINE = (
    duckdb.IOException,
    duckdb.OutOfMemoryException,
    duckdb.FatalException,
    duckdb.TransactionException,
)


def connect(
    *, memory_limit: str = MEMORY_LIMIT, threads: int | None = None, spill: Path | None = None
) -> duckdb.DuckDBPyConnection:
    """Open a new database in memory, in UTC, that loads no extension by itself.

    Args:
        memory_limit: Such as `1GB`. DuckDB spills to disk above it.
        threads: None for one per core.
        spill: Folder for spilled data; None for one in the system's temporary folder, removed on close.
    """
    connection = duckdb.connect(config=dict(_CONFIG))
    folder = spill or Path(tempfile.gettempdir()) / f"trajkit-spill-{secrets.token_hex(6)}"
    connection.execute("SET TimeZone = 'UTC'")
    # stores are read part by part, and each query would read the footers of all files again
    connection.execute("SET parquet_metadata_cache = true")
    for system in opened():
        connection.register_filesystem(system)
    # in Jupyter without ipywidgets DuckDB has no progress bar, and refuses the setting
    with contextlib.suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")
    connection.execute(f"SET temp_directory = {literal(str(folder))}")
    connection.execute(f"SET memory_limit = {literal(memory_limit)}")
    if threads is not None:
        connection.execute(f"SET threads = {int(threads)}")
    return connection


@functools.lru_cache(maxsize=256)
def parsed(sql: str) -> tuple[duckdb.Statement, ...]:
    """Parse a text that is run repeatedly: parsing a long one takes milliseconds.

    Each statement can be passed to `execute`, on any connection and in any thread.
    """
    return tuple(duckdb.extract_statements(sql))


def parser() -> duckdb.DuckDBPyConnection:
    """Open a connection that only parses a user's text, and refuses text that is nested too deep."""
    connection = _parsing_database(os.getpid()).cursor()
    connection.execute(f"SET max_expression_depth = {DEEPEST}")
    return connection


@functools.lru_cache(maxsize=1)
def _parsing_database(_process: int) -> duckdb.DuckDBPyConnection:
    """Open the empty database of all parsers of a process once: opening one takes 16 ms."""
    return duckdb.connect(config={"enable_external_access": "false"})


def syntax_tree(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    """Return the statements of an SQL text as DuckDB's parser reads them; `error` is true if it cannot.

    Args:
        connection: Made by `parser`.
        sql: The text.

    Raises:
        QueryError: The text is too long or nested too deep.
    """
    if len(sql) > MOST_CHARACTERS:
        raise QueryError(f"the text has {len(sql):,} characters; at most {MOST_CHARACTERS:,} are read")
    ((found,),) = connection.execute("SELECT json_serialize_sql(CAST(? AS VARCHAR))", [sql]).fetchall()
    tree: dict[str, Any] = json_from_outside(found, where="the text", error=QueryError)
    if tree.get("error") and "expression depth" in str(tree.get("error_message")):
        raise too_deep()
    return tree


def too_deep() -> QueryError:
    """Return the error of an expression that is nested too deep."""
    return QueryError(f"the text is nested more than {DEEPEST} deep", hint="write it with fewer brackets")


def literal(text: str) -> str:
    """Write a text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def file_literal(path: Path) -> str:
    """Write a path as an SQL string literal for `read_parquet` and the like, where `*` must be escaped."""
    return literal(_PATTERN.sub(lambda found: f"[{found[0]}]", str(path)))


def one_row(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...]:
    """Return the only row of a SELECT."""
    (row,) = connection.execute(sql).fetchall()
    return tuple(row)


def scan(paths: list[Path]) -> str:
    """Return SQL that reads these Parquet files in this order, with the file's name in `filename`."""
    return f"read_parquet([{', '.join(map(file_literal, paths))}], filename = true)"


@contextlib.contextmanager
def interruptible(*connections: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Let Ctrl-C stop the queries of a block at once, as KeyboardInterrupt.

    Python's own handler cannot do that during a query: DuckDB checks for signals only between tasks, which
    may take minutes (2.0.0, measured: 11 of 14 writes of 100 million rows could not be stopped). So the
    signal also wakes a thread, which interrupts DuckDB. In a thread other than the main one, which gets no
    Ctrl-C, this does nothing.

    Args:
        connections: The connections that the block uses.
    """
    with contextlib.ExitStack() as stack:
        if connections and threading.current_thread() is threading.main_thread():
            stack.enter_context(_watching(connections))
        try:
            yield
        except (duckdb.Error, RuntimeError) as error:
            if _is_ctrl_c(error):
                raise KeyboardInterrupt from error
            raise


class TimeLimit:
    """Stops the queries of some connections after a time limit; only time inside `counting` counts.

    DuckDB cannot be interrupted within one function. If one still runs 10 s later, a command line exits.

    Args:
        limit_s: Seconds in all; None for no limit.
        connections: The connections to stop.
        what: Name of the work, for the message.
        hint: How to get more time.
    """

    def __init__(
        self,
        limit_s: float | None,
        *connections: duckdb.DuckDBPyConnection,
        what: str,
        hint: str | None = None,
    ) -> None:
        self._left_s = limit_s
        self._connections = connections
        self._is_over = threading.Event()
        self._error = QueryError(f"{what} took longer than {limit_s or 0:g} s and was stopped", hint=hint)

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count the time of a block.

        Raises:
            QueryError: The limit was reached.
        """
        if self._left_s is None:
            yield
            return
        is_done = threading.Event()
        watcher = threading.Thread(target=self._stop, args=(is_done,), daemon=True)
        began = time.monotonic()
        watcher.start()
        try:
            yield
        except (duckdb.Error, RuntimeError, OSError, ValueError) as error:
            if self._is_over.is_set():
                raise self._error from error
            raise
        finally:
            is_done.set()
            watcher.join()
            self._left_s -= time.monotonic() - began

    def _stop(self, is_done: threading.Event) -> None:
        if is_done.wait(max(0.0, self._left_s or 0.0)):
            return
        self._is_over.set()
        ends_at = time.monotonic() + _GRACE_S
        while not is_done.wait(0.1):  # repeatedly, because a query may be just about to begin
            for connection in self._connections:
                connection.interrupt()
            if is_own_process() and time.monotonic() > ends_at:
                os.write(2, f"error: {self._error.message}\n".encode())
                os._exit(1)


def _is_ctrl_c(error: Exception) -> bool:
    """Whether DuckDB raised this error because of a Ctrl-C."""
    text = str(error)
    if isinstance(error, duckdb.InterruptException):
        return True
    if isinstance(error, RuntimeError):
        return "interrupted" in text.lower()
    # Ctrl-C came while DuckDB read the rows of a registered Python object
    return "registered as '" in text and "KeyboardInterrupt" in text


@contextlib.contextmanager
def _watching(connections: tuple[duckdb.DuckDBPyConnection, ...]) -> Iterator[None]:
    listening, woken = socket.socketpair()
    woken.setblocking(False)
    before = signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    watcher = threading.Thread(target=_interrupt, args=(listening, connections), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        try:
            signal.set_wakeup_fd(before)
        except OSError:  # it was closed before: a Ctrl-C came between two blocks
            signal.set_wakeup_fd(-1)
        woken.close()
        watcher.join()
        listening.close()


def _interrupt(listening: socket.socket, connections: tuple[duckdb.DuckDBPyConnection, ...]) -> None:
    """Wait for Ctrl-C; then interrupt repeatedly, because a query may be just about to begin."""
    while received := listening.recv(64):
        if signal.SIGINT in received:
            break
    listening.settimeout(0.1)
    while received:
        for connection in connections:
            connection.interrupt()
        with contextlib.suppress(TimeoutError):
            received = listening.recv(64)
            if signal.SIGINT in received and is_own_process():
                os._exit(130)  # a second Ctrl-C: within one function DuckDB does not react to the first


@contextlib.contextmanager
def writing(path: Path, *connections: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Translate DuckDB's errors: name the path that could not be written, or the value that did not fit.

    Args:
        path: The path that is being written.
        connections: The connections that the block uses, for Ctrl-C (`interruptible`).

    Raises:
        StoreError: The disk is full, the folder is not writable, or the memory limit is too small.
        DataError: A value does not fit its column, or a column is missing.
    """
    try:
        with interruptible(*connections):
            yield
    except (*_MACHINE, OSError) as error:
        raise StoreError(
            f"{path} could not be written: {first_line(error)}",
            hint="the disk may be full, or the folder read-only",
        ) from error
    except (duckdb.ConversionException, duckdb.InvalidInputException, duckdb.BinderException) as error:
        raise DataError(f"{path.parent.name or path}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """Return the first line of a message, without DuckDB's prefix; of an error in Python code, the last."""
    lines = str(error).strip().splitlines() or [""]
    if "Traceback (most recent call last)" in lines[0]:
        lines = [line for line in reversed(lines) if _PYTHON_ERROR.match(line)] or lines
    line = lines[0]
    kind, separator, rest = line.partition(" Error: ")
    return rest if separator and len(kind) < 30 else line
