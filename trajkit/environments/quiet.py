"""Keep stdout for results: what an environment or an agent prints goes to stderr.

This redirects only the code that runs in a block, with its asyncio tasks; other threads and tasks print as
usual. It does not see text that C code or another process writes to the file descriptor: `kept_stdout`
redirects the descriptor itself, once for a whole command.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar, Token
from typing import Any, TextIO

_lock = threading.Lock()
_n_needed = 0
"""Number of blocks and agents that need the switch."""
_is_quiet: ContextVar[bool] = ContextVar("trajkit_is_quiet", default=False)
_heard: list[str] | None = None
_MOST_HEARD = 1000
"""Maximum number of lines to keep."""


class _Switch:
    """The replacement of stdout while an environment or an agent runs."""

    def __init__(self) -> None:
        self.stdout: TextIO = sys.stdout

    def write(self, text: str) -> int:
        """Write to the stream of the running code, or collect the text."""
        if _heard is None or not _is_quiet.get():
            return self._stream().write(text)
        if len(_heard) < _MOST_HEARD:
            _heard.append(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream(), name)

    def _stream(self) -> TextIO:
        return sys.stderr if _is_quiet.get() else self.stdout


_switch = _Switch()


def divert() -> None:
    """Put the switch in place of stdout until `restore`. Calls can be nested."""
    global _n_needed
    with _lock:
        if not _n_needed:
            if sys.stdout is not _switch:  # another thread may have restored it
                _switch.stdout = sys.stdout
            sys.stdout = _switch
        _n_needed += 1


def restore() -> None:
    """End the last `divert`."""
    global _n_needed
    with _lock:
        _n_needed -= 1
        if not _n_needed and sys.stdout is _switch:  # else other code has put its own stream there
            sys.stdout = _switch.stdout


def enter() -> Token[bool]:
    """Redirect the running code until `leave`, which gets what this returns. Calls can be nested."""
    divert()
    return _is_quiet.set(True)


def leave(token: Token[bool]) -> None:
    """End an `enter`."""
    _is_quiet.reset(token)
    restore()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Redirect the running code during a block."""
    token = enter()
    try:
        yield
    finally:
        leave(token)


@contextlib.contextmanager
def overheard() -> Iterator[list[str]]:
    """Collect redirected lines of a block in a list instead of writing them. Only one block at a time."""
    global _heard
    said: list[str] = []
    _heard = said
    try:
        yield said
    finally:
        _heard = None


@contextlib.contextmanager
def kept_stdout() -> Iterator[None]:
    """Keep stdout for Python's `sys.stdout`; other writers to the file descriptor reach stderr.

    These are C code in this process, and processes that are started meanwhile. It does nothing if stdout has
    no file descriptor, as in a notebook.
    """
    before = sys.stdout
    try:
        kept = os.dup(before.fileno())
    except (OSError, ValueError, AttributeError):
        yield
        return
    number = before.fileno()
    before.flush()
    os.dup2(2, number)
    with os.fdopen(
        kept, "w", encoding=before.encoding, errors=before.errors, buffering=1, newline=""
    ) as results:
        sys.stdout = results
        try:
            yield
        finally:
            sys.stdout = before
            results.flush()
            _flush_c()
            os.dup2(kept, number)


def _flush_c() -> None:
    """Flush the buffer of C code before the descriptor is restored."""
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)
