"""Make ids: UUID version 7, in order within the process whatever the clock does."""

from __future__ import annotations

import secrets
import threading
import time
import uuid
from datetime import UTC, datetime

_COUNTER_LIMIT = 1 << 12
_BACK_MS = 1000
"""If the clock is behind by less, a full counter waits for it."""


class Maker:
    """Makes ids, each larger than the one before.

    RFC 9562 section 6.2, method 1: a counter in the 12 bits after the version, restarted each millisecond.
    While the clock is behind the latest id, the counter continues.

    Args:
        follows_clock: Ids go back when the clock is set back by more than a second. Otherwise they stay
            ahead of it until it has caught up.
    """

    def __init__(self, *, follows_clock: bool) -> None:
        self._follows_clock = follows_clock
        self._lock = threading.Lock()
        self._milliseconds = self._counter = 0

    def make(self) -> str:
        """Return a new id."""
        with self._lock:
            now = _clock_ms()
            is_far_back = self._milliseconds - now > _BACK_MS
            if now > self._milliseconds or (is_far_back and self._follows_clock):
                self._begin(now)
            elif self._counter + 1 < _COUNTER_LIMIT:
                self._counter += 1
            elif is_far_back:
                self._begin(self._milliseconds + 1)
            else:
                while (now := _clock_ms()) <= self._milliseconds:
                    time.sleep(0.0002)
                self._begin(now)
            value = self._milliseconds << 80 | 0x7 << 76 | self._counter << 64 | 0b10 << 62
        return str(uuid.UUID(int=value | secrets.randbits(62)))

    def _begin(self, milliseconds: int) -> None:
        self._milliseconds, self._counter = milliseconds, secrets.randbits(11)


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


_in_order = Maker(follows_clock=False)
_by_clock = Maker(follows_clock=True)


def uuid7() -> str:
    """Return a new UUIDv7, larger than all earlier ones in this process, also if the clock is set back."""
    return _in_order.make()


def uuid7_by_clock() -> str:
    """Return a new UUIDv7 that is not ahead of the clock: a gateway refuses episode ids of the future."""
    return _by_clock.make()


def time_of(identifier: str) -> datetime:
    """Return the time in a UUIDv7, to the millisecond."""
    milliseconds = uuid.UUID(identifier).int >> 80
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC)
