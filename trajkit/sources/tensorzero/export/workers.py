"""Process the groups of an export in threads: while one is assembled, another is assembled or written."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Generic, Self, TypeVar

import duckdb

from trajkit.sources.tensorzero.export.grouping import may_be_one
from trajkit.sources.tensorzero.export.spool import Size, total

Result = TypeVar("Result")

_N_THREADS = 2
"""More would take more memory than they save time: DuckDB also uses further cores."""
_LOOK_S = 0.05
_PATIENCE_S = 10.0
"""How long a failure waits for work that is not a query, which may hang on a lost database."""


class Running:
    """The connections on which queries may be running, so that another thread can stop them."""

    def __init__(self) -> None:
        self._connections: list[duckdb.DuckDBPyConnection] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def cursor(self, connection: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
        """Lend a cursor within a block."""
        with connection.cursor() as cursor:
            with self._lock:
                self._connections.append(cursor)
            try:
                yield cursor
            finally:
                with self._lock:
                    self._connections.remove(cursor)

    def interrupt(self) -> None:
        """Stop the running queries."""
        with self._lock:
            for connection in self._connections:
                connection.interrupt()


class Room:
    """Lets threads process work in parallel that fits into memory together; the rest waits."""

    def __init__(self) -> None:
        self._taken: list[Size] = []
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def of(self, size: Size) -> Iterator[None]:
        """Reserve memory within a block; work that runs alone always has room."""
        with self._changed:
            self._changed.wait_for(lambda: not self._taken or may_be_one(total([size, *self._taken])))
            self._taken.append(size)
        try:
            yield
        finally:
            with self._changed:
                self._taken.remove(size)
                self._changed.notify_all()


class Workers(Generic[Result]):
    """Threads within a block. When it fails, or with Ctrl-C, their work is stopped.

    Args:
        running: Where they run their queries.
        take: Gets each result, in the order in which the work was given.
    """

    def __init__(self, running: Running, take: Callable[[Result], None]) -> None:
        self._running = running
        self._take = take
        self._pool = ThreadPoolExecutor(_N_THREADS)
        self._pending: deque[Future[Result]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            while kind is None and self._pending:
                self._take_first()
        finally:
            self._stop()

    def give(self, work: Callable[[], Result]) -> None:
        """Give work to a thread, as soon as one is free; an earlier error is raised here."""
        if len(self._pending) == _N_THREADS:
            self._take_first()
        future: Future[Result] = Future()
        # recorded before it is given: otherwise a Ctrl-C in between could not stop it
        self._pending.append(future)
        self._pool.submit(_do, work, future)

    def _take_first(self) -> None:
        # it stays pending until it is over: waiting for it may be interrupted
        result = self._pending[0].result()
        self._pending.popleft()
        self._take(result)

    def _stop(self) -> None:
        """Stop the running queries, repeatedly, as a query may be about to begin."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        begun = [future for future in self._pending if not future.cancel()]
        until = time.monotonic() + _PATIENCE_S
        while wait(begun, _LOOK_S).not_done and time.monotonic() < until:
            self._running.interrupt()


def _do(work: Callable[[], Result], future: Future[Result]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the caller that takes the result gets it
            future.set_exception(error)
