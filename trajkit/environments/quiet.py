"""Keep stdout for results: what an environment prints goes to stderr.

This redirects only the thread that runs an environment; other threads print as usual. It does not see text
that C code or another process writes to the file descriptor: `kept_stdout` redirects the descriptor itself,
once for a whole command.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

_lock = threading.Lock()
_depths: dict[int, int] = {}
"""Depth of nested environments by thread."""
_heard: list[str] | None = None
_MOST_HEARD = 1000
"""How many lines are kept."""


class _Switch:
    """The replacement of stdout while any thread runs an environment."""

    def __init__(self) -> None:
        self.stdout: TextIO = sys.stdout

    def write(self, text: str) -> int:
        """Write to the stream of this thread, or collect the text."""
        if _heard is None or threading.get_ident() not in _depths:
            return self._stream().write(text)
        if len(_heard) < _MOST_HEARD:
            _heard.append(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream(), name)

    def _stream(self) -> TextIO:
        return sys.stderr if threading.get_ident() in _depths else self.stdout


_switch = _Switch()


def enter() -> None:
    """Redirect this thread until `leave`. Calls can be nested."""
    me = threading.get_ident()
    with _lock:
        if not _depths:
            if sys.stdout is not _switch:  # another thread may have restored it
                _switch.stdout = sys.stdout
            sys.stdout = _switch
        _depths[me] = _depths.get(me, 0) + 1


def leave() -> None:
    """End the last `enter` of this thread."""
    me = threading.get_ident()
    with _lock:
        if _depths[me] == 1:
            del _depths[me]
        else:
            _depths[me] -= 1
        if not _depths:
            sys.stdout = _switch.stdout


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Redirect this thread during a block."""
    enter()
    try:
        yield
    finally:
        leave()


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
