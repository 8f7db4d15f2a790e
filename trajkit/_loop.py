"""Run a coroutine from code that waits for it, also where an event loop runs already, as in a notebook."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_to_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end, in a loop of its own.

    Where a loop runs in this thread, which then waits, the work is done in another thread: no loop can wait
    inside another. Ctrl-C, or a notebook's stop, cancels the work and is raised when that has ended.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_here(work)
    begun: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def noted() -> Result:
        task = asyncio.current_task()
        assert task is not None
        begun.append((asyncio.get_running_loop(), task))
        return await work

    with ThreadPoolExecutor(1, thread_name_prefix="trajkit") as pool:
        done = pool.submit(contextvars.copy_context().run, asyncio.run, noted())
        try:
            return done.result()
        except KeyboardInterrupt:
            for loop, task in begun:
                if not done.done():
                    loop.call_soon_threadsafe(task.cancel)
            wait([done])
            raise


def _run_here(work: Coroutine[Any, Any, Result]) -> Result:
    """`asyncio.run`, where a Ctrl-C is always KeyboardInterrupt.

    `asyncio.Runner` takes over Ctrl-C and sets its count of them to 0 after that: one that comes between the
    two cancels the work, and is then forgotten (Python 3.11 to 3.13; 7 of 36,000 that came while it started).
    """
    try:
        return asyncio.run(work)
    except asyncio.CancelledError as error:
        raise KeyboardInterrupt from error
