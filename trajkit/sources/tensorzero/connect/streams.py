"""Streams of rows from a database: count them, read several at a time, turn them into tables."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import duckdb
import pyarrow as pa

PATIENCE_S = 2.0
"""Seconds that a failure waits for parallel streams, which may hang on a lost database."""


OnProgress = Callable[[str, int, int | None], None]
"""Called with the current action, the rows done, and their total (None if unknown)."""


class Count:
    """Counts the rows of streams that are read at the same time; when one fails, the others end.

    Args:
        what: Name of the rows that are read.
        n_total: Rows in all; None if unknown.
        on_progress: Called with every batch.
    """

    def __init__(self, what: str, n_total: int | None, on_progress: OnProgress) -> None:
        self._what = what
        self._n_total = n_total
        self._n_done = 0
        self._n_open = 0
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._has_failed = False
        on_progress(what, 0, n_total)

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches of one stream."""
        with self._lock:
            self._n_open += 1
        try:
            with self.stopping_all():
                for batch in batches:
                    if self._has_failed:
                        return
                    with self._lock:
                        self._n_done += batch.num_rows
                        self._on_progress(self._what, self._n_done, self._n_total)
                    yield batch
        finally:
            with self._lock:
                self._n_open -= 1

    def then(self, what: str, n_done: int, n_total: int | None) -> None:
        """Report other progress, once all streams are read: two would alternate on one line."""
        with self._lock:
            if not self._n_open:
                self._on_progress(what, n_done, n_total)

    @contextlib.contextmanager
    def stopping_all(self) -> Iterator[None]:
        """Let the streams end when the block fails."""
        try:
            yield
        except BaseException:
            self._has_failed = True
            raise


@contextlib.contextmanager
def aside(work: Callable[[], None], count: Count) -> Iterator[None]:
    """Run a function in a thread beside a block; its error is raised at the block's end.

    A block that fails, or Ctrl-C, tells the streams to end and waits for the thread only a moment.
    """
    done: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 -- raised again at the block's end
            done.set_exception(error)
        else:
            done.set_result(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        with count.stopping_all():
            yield
            done.result()
    finally:
        thread.join(PATIENCE_S)


def load(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    columns: str,
) -> None:
    """Make a table from a stream of a database.

    Args:
        connection: Gets the table.
        table: Its name.
        batches: The stream.
        schema: Its schema without batches; else that of the batches.
        columns: SQL for the columns of the table.
    """
    failures: list[BaseException] = []
    first = next(batches, None)
    if first is not None:
        schema, batches = first.schema, itertools.chain([first], batches)

    def noting() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except BaseException as error:
            failures.append(error)
            raise

    connection.register("incoming", pa.RecordBatchReader.from_batches(schema, noting()))
    try:
        connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT {columns} FROM incoming")
    except Exception:
        # the error of the stream itself, not DuckDB's version of it
        if failures:
            raise failures[0] from None
        raise
    connection.unregister("incoming")


def leave_copies(connection: duckdb.DuckDBPyConnection, table: str, key: str) -> int:
    """Keep one row for each id in a table, as a database may have duplicates; return the number removed."""
    ((n,),) = connection.execute(f"SELECT count(*) - count(DISTINCT {key}) FROM {table}").fetchall()
    if n:
        connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT DISTINCT ON ({key}) * FROM {table}")
    return int(n)
