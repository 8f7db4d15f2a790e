"""Episode ids made here: UUID version 7, in order within the process and never ahead of the clock."""

from __future__ import annotations

import secrets
import threading
import time
import uuid
from datetime import UTC, datetime

_lock = threading.Lock()
_last = (0, 0)  # milliseconds, counter


def uuid7() -> str:
    """A new UUIDv7, larger than every one before it in this process while the clock is not set back.

    RFC 9562 section 6.2, method 1: a counter in the 12 bits after the version, begun anew each millisecond.
    """
    global _last
    with _lock:
        now = time.time_ns() // 1_000_000
        before, counter = _last
        # Within a millisecond, or when the clock is set back a little, the counter moves and the time stays.
        # A clock set back by more is followed, out of order: a gateway refuses ids from its future.
        if now > before or before - now > 1000:
            counter = secrets.randbits(11)
        else:
            now, counter = before, counter + 1
            if counter >= 1 << 12:
                while (now := time.time_ns() // 1_000_000) <= before:
                    time.sleep(0.0002)
                counter = secrets.randbits(11)
        _last = (now, counter)
    value = now << 80 | 0x7 << 76 | counter << 64 | 0b10 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=value))


def time_of(identifier: str) -> datetime:
    """The moment in a UUIDv7, to the millisecond."""
    milliseconds = uuid.UUID(identifier).int >> 80
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC)
