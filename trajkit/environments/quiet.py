"""Keep stdout for results: what an environment prints while it runs goes to stderr.

Only the thread that is inside an environment is diverted; what other threads print meanwhile stays where it
belongs. Text that C code or another process writes to the file descriptor is not seen here: `kept_stdout`
moves the descriptor itself, once for a whole command.
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
"""How deep each thread is inside environments, by its identity."""
_heard: list[str] | None = None
_MOST_HEARD = 1000
"""Lines that are noted; an environment may print for hours."""


class _Switch:
    """Stands in for stdout while any thread is inside an environment."""

    def __init__(self) -> None:
        self.stdout: TextIO = sys.stdout

    def write(self, text: str) -> int:
        """Write to the stream of this thread, or note it where somebody listens."""
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
    """Divert this thread until `leave`. May be nested."""
    me = threading.get_ident()
    with _lock:
        if not _depths:
            if sys.stdout is not _switch:  # another thread may have put it back after a diversion of its own
                _switch.stdout = sys.stdout
            sys.stdout = _switch
        _depths[me] = _depths.get(me, 0) + 1


def leave() -> None:
    """End what the last `enter` of this thread began."""
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
    """Divert this thread for the time of a block."""
    enter()
    try:
        yield
    finally:
        leave()


@contextlib.contextmanager
def overheard() -> Iterator[list[str]]:
    """Note in a list what would be diverted in a block, instead of writing it. One block at a time."""
    global _heard
    said: list[str] = []
    _heard = said
    try:
        yield said
    finally:
        _heard = None


@contextlib.contextmanager
def kept_stdout() -> Iterator[None]:
    """Keep stdout for Python's own `sys.stdout`: what else writes to the descriptor reaches stderr.

    That is C code in this process, and any process that is started meanwhile. Does nothing where stdout is no
    file of the system, as in a notebook.
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
    """C code's own buffer goes where it was to go before the descriptor is put back."""
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)
