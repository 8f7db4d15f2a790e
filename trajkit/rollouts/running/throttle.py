"""Limit the requests in flight: fewer when a service asks for it, more again when it answers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator


class Throttle:
    """A limit that is halved by a "too many requests" and grows by one per round of good answers.

    Args:
        most: Initial and highest limit.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = most
        """Requests that may be in flight now."""
        self.lowest = most
        """The lowest that the limit has been."""
        self.n_in_flight = 0
        self._n_good = 0
        self._n_cuts = 0
        self._open_at = 0.0
        self._before_away: int | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        """Wait until one more request may be sent, and hold its place for the time of the block."""
        while self.n_in_flight >= self.limit:
            await self._wait_for_place()
        self.n_in_flight += 1
        try:
            while (pause_s := self._open_at - time.monotonic()) > 0:
                await asyncio.sleep(pause_s)
            yield Turn(self, self._n_cuts)
        finally:
            self.n_in_flight -= 1
            self._wake()

    async def _wait_for_place(self) -> None:
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self._wake()  # this one was already admitted: admit the next one
            raise

    def _wake(self) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return

    def good(self) -> None:
        """Record an answer: after as many answers as the limit, the limit grows by one."""
        self.back()
        self._n_good += 1
        if self._n_good >= self.limit < self.most:
            self.limit += 1
            self._n_good = 0
            self._wake()

    def away(self, pause_s: float) -> None:
        """Record an outage: send one request at a time, after a pause, until one is answered."""
        self._open_at = max(self._open_at, time.monotonic() + pause_s)
        if self._before_away is None:
            self._before_away, self.limit = self.limit, 1

    def back(self) -> None:
        """Record the end of an outage, or of the wait for it: restore the limit."""
        if self._before_away is not None:
            self.limit, self._before_away = self._before_away, None
            for _ in range(self.limit):
                self._wake()

    def too_many(self, seen_cuts: int, retry_after_s: float | None) -> None:
        """Record a request for fewer requests: halve the limit, once for all that were in flight together."""
        if retry_after_s is not None:
            self._open_at = max(self._open_at, time.monotonic() + retry_after_s)
        if seen_cuts == self._n_cuts:
            self._n_cuts += 1
            self._n_good = 0
            self.limit = max(1, self.limit // 2)
            self.lowest = min(self.lowest, self.limit)


class Turn:
    """The place of one request."""

    def __init__(self, throttle: Throttle, seen_cuts: int) -> None:
        self._throttle = throttle
        self._seen_cuts = seen_cuts

    def good(self) -> None:
        """Record that the request was answered."""
        self._throttle.good()

    def too_many(self, retry_after_s: float | None) -> None:
        """Record that the request was refused as one too many.

        Args:
            retry_after_s: Seconds without requests; None when the service gave none.
        """
        self._throttle.too_many(self._seen_cuts, retry_after_s)
