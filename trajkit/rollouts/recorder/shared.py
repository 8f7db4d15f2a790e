"""Store requests of a growing conversation as differences from earlier ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

_MOST_BASES = 4
_FIRST_PIECE = 256
_SMALL = 64
"""A body that has all but this many bytes of another one replaces it as a base."""


class Difference(NamedTuple):
    """A body as the part between what it shares with another body."""

    base: int | None
    """Number of the other body; None when this one stands alone."""
    n_start: int
    """Length of the common start."""
    n_end: int
    """Length of the common end."""
    middle: bytes
    """The bytes between them in this body."""

    def around(self, body: bytes, n_more: int) -> bytes:
        """Return the middle with a number of bytes on either side."""
        stop = len(body) - self.n_end + n_more
        return body[max(0, self.n_start - n_more) : stop]

    def body(self, base: bytes) -> bytes:
        """Return the whole body."""
        return base[: self.n_start] + self.middle + (base[-self.n_end :] if self.n_end else b"")


class Lane:
    """The latest bodies of an episode's conversations; a few, because conversations may alternate."""

    def __init__(self) -> None:
        self._latest: list[tuple[int, bytes]] = []  # the one used last comes last

    def difference(self, body: bytes) -> Difference:
        """Return the new part of a body."""
        best, n_best = None, 0
        for position, (_, other) in enumerate(self._latest):
            n = n_common_start(body, other)
            if n > n_best:
                best, n_best = position, n
        if best is None:
            return Difference(None, 0, 0, body)
        number, other = self._latest[best]
        n_end = n_common_end(body[n_best:], other[n_best:])  # must not overlap with the common start
        return Difference(number, n_best, n_end, body[n_best : len(body) - n_end])

    def body(self, difference: Difference) -> bytes:
        """Restore the body of a difference.

        Raises:
            KeyError: Its base was not kept.
        """
        return difference.body(b"" if difference.base is None else dict(self._latest)[difference.base])

    def keep(self, number: int, body: bytes, difference: Difference) -> None:
        """Remember a body under its number, in place of the one that it continues.

        Writer and reader keep the same bodies, because this depends only on the arguments.
        """
        n_shared = difference.n_start + difference.n_end
        self._latest = [
            (other_number, other)
            for other_number, other in self._latest
            if other_number != difference.base or n_shared < len(other) - _SMALL
        ][1 - _MOST_BASES :]
        self._latest.append((number, body))


def n_common_start(one: bytes, other: bytes) -> int:
    """Return the length of the common start."""
    return _n_common(min(len(one), len(other)), lambda low, high: one[low:high] == other[low:high])


def n_common_end(one: bytes, other: bytes) -> int:
    """Return the length of the common end."""
    n, m = len(one), len(other)
    return _n_common(min(n, m), lambda low, high: one[n - high : n - low] == other[m - high : m - low])


def _n_common(n_most: int, is_same: Callable[[int, int], bool]) -> int:
    low, size = 0, _FIRST_PIECE
    while low < n_most and is_same(low, min(low + size, n_most)):
        low, size = min(low + size, n_most), 2 * size
    high = min(low + size, n_most)
    while low < high:  # equal up to `low`, and different somewhere before `high`
        middle = (low + high + 1) // 2
        if is_same(low, middle):
            low = middle
        else:
            high = middle - 1
    return low
