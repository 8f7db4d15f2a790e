"""Stop code that does not return, on systems with an alarm signal."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn


class TooLong(BaseException):
    """The time limit was reached. It is not an `Exception`, so that the stopped code does not catch it."""


@contextlib.contextmanager
def watch(seconds: float) -> Iterator[None]:
    """Stop a block after a number of seconds. This works only in the main thread of a POSIX system.

    An alarm that is already set still goes off at its time.

    Raises:
        TooLong: The block took longer.
    """
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return
    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, _ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 0.001), interval)


def _ring(number: int, frame: FrameType | None) -> NoReturn:
    raise TooLong
