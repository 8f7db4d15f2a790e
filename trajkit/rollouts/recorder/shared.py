"""Requests of a growing conversation are kept as what differs from one before: bytes in, bytes out."""

from __future__ import annotations

from typing import NamedTuple

_MOST_BASES = 4
_FIRST_PIECE = 256
_SMALL = 64
"""A body that has all of another but so many bytes goes on from it."""


class Difference(NamedTuple):
    """A body as its own part between the two that it shares with another."""

    base: int | None
    """Number of the body that it is compared with; None when it stands alone."""
    n_start: int
    """Bytes that both begin with."""
    n_end: int
    """Bytes that both end with."""
    middle: bytes
    """What is between them in this one."""

    def around(self, body: bytes, n_more: int) -> bytes:
        """The middle with so many bytes on either side, of the body that the difference is of."""
        stop = len(body) - self.n_end + n_more
        return body[max(0, self.n_start - n_more) : stop]

    def body(self, base: bytes) -> bytes:
        """The whole body again."""
        return base[: self.n_start] + self.middle + (base[-self.n_end :] if self.n_end else b"")


class Lane:
    """The latest bodies of the conversations of one episode: a few, as several may go on in turns."""

    def __init__(self) -> None:
        self._latest: list[tuple[int, bytes]] = []  # the one used last comes last

    def difference(self, body: bytes) -> Difference:
        """What is new in a body."""
        best, n_best = None, 0
        for position, (_, other) in enumerate(self._latest):
            n = n_common_start(body, other)
            if n > n_best:
                best, n_best = position, n
        if best is None:
            return Difference(None, 0, 0, body)
        number, other = self._latest[best]
        n_end = n_common_end(body[n_best:], other[n_best:])  # what both begin with is not counted twice
        return Difference(number, n_best, n_end, body[n_best : len(body) - n_end])

    def body(self, difference: Difference) -> bytes:
        """The body again that the difference was made of.

        Raises:
            KeyError: The body that it is compared with was not kept.
        """
        return difference.body(b"" if difference.base is None else dict(self._latest)[difference.base])

    def keep(self, number: int, body: bytes, difference: Difference) -> None:
        """Remember a body under its number, in place of the one that it goes on from.

        Who writes and who reads keep the same bodies, as this depends on the arguments alone.
        """
        n_shared = difference.n_start + difference.n_end
        self._latest = [
            (other_number, other)
            for other_number, other in self._latest
            if other_number != difference.base or n_shared < len(other) - _SMALL
        ][1 - _MOST_BASES :]
        self._latest.append((number, body))


def n_common_start(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    n_most = min(len(one), len(other))
    low, size = 0, _FIRST_PIECE
    while low < n_most and _same(one, other, low, min(low + size, n_most)):
        low, size = min(low + size, n_most), 2 * size
    high = min(low + size, n_most)
    while low < high:  # they are the same up to `low`, and what follows is not the same up to `high`
        middle = (low + high + 1) // 2
        if _same(one, other, low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _same(one: bytes, other: bytes, low: int, high: int) -> bool:
    return one[low:high] == other[low:high]


def n_common_end(one: bytes, other: bytes) -> int:
    """How many bytes both end with."""
    n_most = min(len(one), len(other))
    low, size = 0, _FIRST_PIECE
    while low < n_most and _same_end(one, other, low, min(low + size, n_most)):
        low, size = min(low + size, n_most), 2 * size
    high = min(low + size, n_most)
    while low < high:
        middle = (low + high + 1) // 2
        if _same_end(one, other, low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _same_end(one: bytes, other: bytes, low: int, high: int) -> bool:
    return one[len(one) - high : len(one) - low] == other[len(other) - high : len(other) - low]
