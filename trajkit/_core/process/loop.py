"""Wait for work that runs in a loop or a thread of its own, and let Ctrl-C and SIGTERM end it.

Coroutines are also run to their end if an event loop runs already, as in a notebook.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from types import FrameType
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


def run_to_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end, in a loop of its own.

    If a loop runs in this thread, the work is done in another thread and this one waits: no loop can wait
    inside another. Ctrl-C, or a notebook's stop, cancels the work and is raised when the work has ended.
    """
    begun = _Begun(work)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_here(begun)
    with ThreadPoolExecutor(1, thread_name_prefix="trajkit") as pool:
        done = pool.submit(contextvars.copy_context().run, asyncio.run, begun.run())
        try:
            return done.result()
        except KeyboardInterrupt:
            begun.stop()
            wait([done])
            raise


@contextlib.contextmanager
def told_to_end(end: Callable[[], object]) -> Iterator[None]:
    """Call `end` at the first SIGTERM or Ctrl-C in the block; a second one has its usual effect.

    Only the main thread gets signals: in another one this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def hear(*_: object) -> None:
        restore()
        end()

    for number in numbers:
        signal.signal(number, hear)
    try:
        yield
    finally:
        restore()


class _Begun(Generic[Result]):
    """Work that can be stopped at any time: before it begins, while it runs, after its end."""

    def __init__(self, work: Coroutine[Any, Any, Result]) -> None:
        self._work = work
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self.is_stopped = False

    async def run(self) -> Result:
        task = asyncio.current_task()
        assert task is not None
        self._running = asyncio.get_running_loop(), task
        if self.is_stopped:
            self._work.close()
            raise asyncio.CancelledError
        return await self._work

    def stop(self) -> None:
        self.is_stopped = True
        if self._running is None:
            return
        loop, task = self._running
        if not task.done():
            loop.call_soon_threadsafe(task.cancel)


def _run_here(begun: _Begun[Result]) -> Result:
    """Call `asyncio.run` so that Ctrl-C at any time is KeyboardInterrupt.

    In `asyncio.Runner` itself a first Ctrl-C may come so early that it is counted and forgotten (the result
    is CancelledError), or that it interrupts the making of the loop (RuntimeError when that is closed).
    """
    with _stopped_by_ctrl_c(begun):
        return asyncio.run(begun.run())


@contextlib.contextmanager
def _stopped_by_ctrl_c(begun: _Begun[Any]) -> Iterator[None]:
    """Let a first Ctrl-C stop the work, and be raised at the end of the block; a second is raised at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        if begun.is_stopped:
            raise KeyboardInterrupt
        begun.stop()

    is_ours = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not is_ours:
        yield
        return
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    except asyncio.CancelledError:
        if not begun.is_stopped:
            raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if begun.is_stopped:
        raise KeyboardInterrupt
