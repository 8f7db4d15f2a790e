"""Process many items in this process or in several, with only the current ones in memory."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from trajkit.errors import RequestError, TrajkitError

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 2
"""Items that wait for each process, so that it is never idle."""

_work: Callable[[Any], Any] | None = None
"""The function of this worker process; set once, when it starts."""


def worked(make: Callable[[], Callable[[T], R]], things: Iterable[T], *, processes: int) -> Generator[R]:
    """Yield the result for each item when it is done; in order with one process, in any order with several.

    Close it (`contextlib.closing`) if it is not exhausted, so that the processes end.

    Args:
        make: Creates the function for an item; called once in each process, so it must be picklable.
        things: The items, read lazily.
        processes: Number of processes; 1 is this one.

    Raises:
        RequestError: `processes` is below 1.
        TrajkitError: A process died.
    """
    if processes < 1:
        raise RequestError(f"{processes} processes; it must be 1 or more")
    if processes == 1:
        yield from map(make(), things)
        return
    # fork would copy locks that other threads of this process hold (DuckDB, Arrow)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_begin, initargs=(make,))
    rest = iter(things)
    running: set[Future[R]] = set()
    try:
        while True:
            more = itertools.islice(rest, _AHEAD * processes - len(running))
            running |= {pool.submit(_do, thing) for thing in more}
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    except BrokenProcessPool as error:
        raise TrajkitError(
            "a worker process died",
            hint="memory may be too small; a script that starts several needs `if __name__ == '__main__':`",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(make: Callable[[], Callable[[Any], Any]]) -> None:
    global _work
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the process at once and without a traceback
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _work = make()


def _end_with_parent() -> None:
    """End this process when its parent was killed; otherwise it would wait for work forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _do(thing: Any) -> Any:
    assert _work is not None
    return _work(thing)
