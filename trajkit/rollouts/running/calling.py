"""Call services for all policies of a run, with limits on concurrency, time, retries and total calls."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from trajkit.rollouts.faults import Fault, FaultKind, Faulty, timed_out
from trajkit.rollouts.running.limits import Budget

T = TypeVar("T")

OUTAGE_S = 60.0
"""Seconds to wait for a service that answered before and cannot be reached now."""

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 16.0
_MOST_PROBES = 3
"""Number of attempts in an outage after which waits stop growing: up to 4 s."""
_AWAY = (FaultKind.CONNECTION, FaultKind.NOT_STORED)


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
    async def turn(self) -> AsyncIterator[int]:
        """Wait until one more request may be sent, and hold its place for the time of the block.

        Yields:
            How often the limit was halved before, for `too_many`.
        """
        while self.n_in_flight >= self.limit:
            await self._wait_for_place()
        self.n_in_flight += 1
        try:
            while (pause_s := self._open_at - time.monotonic()) > 0:
                await asyncio.sleep(pause_s)
            yield self._n_cuts
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
        """Record a request for fewer requests: halve the limit, once for all that were in flight together.

        Args:
            seen_cuts: What `turn` gave the refused request.
            retry_after_s: Seconds without requests; None when the service gave none.
        """
        if retry_after_s is not None:
            self._open_at = max(self._open_at, time.monotonic() + retry_after_s)
        if seen_cuts == self._n_cuts:
            self._n_cuts += 1
            self._n_good = 0
            self.limit = max(1, self.limit // 2)
            self.lowest = min(self.lowest, self.limit)


class Caller:
    """Sends requests with retries after passing failures, and fewer at once when a service asks for it.

    After an outage of a service that had answered, it waits with one request at a time. One caller serves a
    whole run, so that its limits hold over all policies.

    Args:
        concurrency: Maximum number of requests in flight.
        timeout_s: Longest wait for one answer, in seconds.
        retries: Maximum retries per failed request.
        budget: The limits of the run; None for no limit.
    """

    def __init__(
        self, *, concurrency: int, timeout_s: float, retries: int, budget: Budget | None = None
    ) -> None:
        self.timeout_s = timeout_s
        self.retries = retries
        self.budget = budget or Budget()
        self.throttle = Throttle(concurrency)
        self._has_answered = False
        self._away_since: float | None = None
        self._n_probes = 0
        self.faults: Counter[FaultKind] = Counter()
        """Number of failures by kind, including those that a retry resolved."""

    async def call(self, attempt: Callable[[], Awaitable[T]], *, is_paid: bool = True) -> T:
        """Send a request and return the answer.

        Args:
            attempt: Sends it once, and raises `Faulty` for a failure of the service.
            is_paid: Whether it calls a model. Other requests (feedback) are not counted or limited.

        Raises:
            Faulty: It failed for good, or after all retries.
            LimitReached: The run has reached a limit.
        """
        number = 0
        while True:
            try:
                return await self._once(attempt, is_paid)
            except Faulty as failure:
                fault = failure.fault
                self.faults[fault.kind] += 1
                if self._is_waited_for(fault):
                    continue  # until the service is back, the throttle admits one request at a time
                if number == self.retries or not self._may_pass(fault):
                    raise
            await asyncio.sleep(wait_s(number))
            number += 1

    async def _once(self, attempt: Callable[[], Awaitable[T]], is_paid: bool) -> T:
        async with self.throttle.turn() as seen_cuts:
            if is_paid:
                self.budget.begin_call()
            try:
                async with asyncio.timeout(self.timeout_s) as limit:
                    answer = await attempt()
            except TimeoutError:
                if not limit.expired():
                    raise
                raise Faulty(timed_out(self.timeout_s)) from None
            except Faulty as failure:
                if failure.fault.kind == FaultKind.RATE_LIMIT:
                    may_wait = self._may_pass(failure.fault)
                    self.throttle.too_many(seen_cuts, failure.fault.retry_after_s if may_wait else None)
                raise
            finally:
                if is_paid:
                    self.budget.end_call()
            self.throttle.good()
            self._has_answered, self._away_since, self._n_probes = True, None, 0
            return answer

    def _is_waited_for(self, fault: Fault) -> bool:
        """Check whether a service that had answered is down and still worth waiting for."""
        if fault.kind not in _AWAY or fault.is_lasting or not self._has_answered or self.retries == 0:
            return False
        now = time.monotonic()
        self._away_since = self._away_since or now
        if now - self._away_since > OUTAGE_S:
            self._has_answered = False  # wait for the next outage only after another answer
            self.throttle.back()
            return False
        self.throttle.away(wait_s(self._n_probes))
        self._n_probes = min(self._n_probes + 1, _MOST_PROBES)
        return True

    def _may_pass(self, fault: Fault) -> bool:
        """Whether to retry; a service that asks for an hour's wait has refused."""
        return not fault.is_lasting and (fault.retry_after_s or 0) <= self.timeout_s


def wait_s(number: int) -> float:
    """Return the seconds before a retry: random, up to a bound that doubles each time.

    Requests that failed together are so spread over time instead of being repeated together.

    Args:
        number: Number of earlier retries.
    """
    return random.uniform(0, min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**number))
