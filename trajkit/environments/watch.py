"""Stop somebody's code that does not come back, where the system has an alarm for it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn


class TooLong(BaseException):
    """The time is over. No `Exception`, so that the code which is stopped does not catch it."""


@contextlib.contextmanager
def watch(seconds: float) -> Iterator[None]:
    """Stop a block after so many seconds; elsewhere than in the main thread of a POSIX system it never is.

    An alarm that is set already goes off at its time.

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
