"""Run an agent's code without blocking other episodes, and keep its prints out of the results."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TextIO

_is_agent: contextvars.ContextVar[bool] = contextvars.ContextVar("trajkit_is_agent", default=False)
"""Whether the running code is an agent's; its tasks and threads inherit this from their context."""


async def run(call: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function and return its result. A synchronous function runs in its own thread.

    The context variables of the caller are set in it. What it prints goes to stderr, with `Stdout` in place.
    """
    token = _is_agent.set(True)
    try:
        if _is_async(call):
            return await call(*arguments)
        said = await _in_thread(functools.partial(call, *arguments))
        return await said if inspect.isawaitable(said) else said
    finally:
        _is_agent.reset(token)


class Stdout:
    """Replaces stdout: prints of agents go to stderr, and all others to the previous stream."""

    def __init__(self) -> None:
        found = sys.stdout
        self._stdout: TextIO = found._stdout if isinstance(found, Stdout) else found  # several agents play
        sys.stdout = self

    def restore(self) -> None:
        """Restore stdout. A second call does nothing."""
        if isinstance(sys.stdout, Stdout):
            sys.stdout = self._stdout

    def write(self, text: str) -> int:
        """Write to the stream of the caller: stderr for agents."""
        return self._stream().write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream(), name)

    def _stream(self) -> TextIO:
        return sys.stderr if _is_agent.get() else self._stdout


def _is_async(call: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)


class _Outcome(NamedTuple):
    """A call in a thread; not a future's own exception, which cannot be a StopIteration."""

    result: Any = None
    error: BaseException | None = None


async def _in_thread(call: Callable[[], Any]) -> Any:
    """Run a call in a thread that does not keep the interpreter from ending, and return its result."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    done: asyncio.Future[_Outcome] = loop.create_future()

    def settle(outcome: _Outcome) -> None:
        if not done.done():
            done.set_result(outcome)

    def work() -> None:
        try:
            outcome = _Outcome(context.run(call))
        except BaseException as error:  # noqa: BLE001 -- raised again where it is awaited
            outcome = _Outcome(error=error)
        with contextlib.suppress(RuntimeError):  # the run was stopped: the result is no longer awaited
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=work, name="trajkit-agent", daemon=True).start()
    outcome = await done
    if isinstance(outcome.error, StopIteration):
        raise RuntimeError("it raised StopIteration") from outcome.error
    if outcome.error is not None:
        raise outcome.error
    return outcome.result
