"""Call services for all policies of a run, with limits on concurrency, time, retries and total calls."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from trajkit.rollouts.faults import Fault, FaultKind, Faulty, timed_out
from trajkit.rollouts.running.limits import Budget
from trajkit.rollouts.running.throttle import Throttle

T = TypeVar("T")

OUTAGE_S = 60.0
"""Seconds to wait for a service that answered before and cannot be reached now."""

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 16.0
_MOST_PROBES = 3
"""Number of attempts in an outage after which waits stop growing: up to 4 s."""
_AWAY = (FaultKind.CONNECTION, FaultKind.NOT_STORED)


class _Outage:
    """An outage of a service that had answered before: its start, and the number of attempts."""

    def __init__(self) -> None:
        self.since: float | None = None
        self.n_probes = 0


class Caller:
    """Sends requests with retries after passing failures, and fewer at once when a service asks for it.

    After an outage of a service that had answered, it waits with one request at a time. One caller serves a
    whole run, so that its limits hold over all policies.

    Args:
        concurrency: Most requests in flight at once.
        timeout_s: Longest wait for one answer, in seconds.
        retries: Most retries of a failed request.
        budget: The limits of the run; None for no limit.
    """

    def __init__(
        self, *, concurrency: int, timeout_s: float, retries: int, budget: Budget | None = None
    ) -> None:
        self.timeout_s = timeout_s
        self.retries = retries
        self.budget = budget or Budget()
        self.throttle = Throttle(concurrency)
        self._outage: _Outage | None = None
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
        async with self.throttle.turn() as turn:
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
                    turn.too_many(failure.fault.retry_after_s if may_wait else None)
                raise
            finally:
                if is_paid:
                    self.budget.end_call()
            turn.good()
            self._outage = _Outage()
            return answer

    def _is_waited_for(self, fault: Fault) -> bool:
        """Check whether a service that had answered is down and still worth waiting for."""
        outage = self._outage
        if fault.kind not in _AWAY or fault.is_lasting or outage is None or self.retries == 0:
            return False
        now = time.monotonic()
        outage.since = outage.since or now
        if now - outage.since > OUTAGE_S:
            self._outage = None  # wait for the next outage only after another answer
            self.throttle.back()
            return False
        self.throttle.away(wait_s(outage.n_probes))
        outage.n_probes = min(outage.n_probes + 1, _MOST_PROBES)
        return True

    def _may_pass(self, fault: Fault) -> bool:
        """Whether to retry; a service that asks for an hour's wait has refused."""
        return not fault.is_lasting and (fault.retry_after_s or 0) <= self.timeout_s

    def spent(
        self, *, n_input_tokens: int | None, n_output_tokens: int | None, cost_usd: float | None = None
    ) -> None:
        """Record the usage of an answer; see `Budget.spend`."""
        self.budget.spend(n_input_tokens=n_input_tokens, n_output_tokens=n_output_tokens, cost_usd=cost_usd)


def wait_s(number: int) -> float:
    """Return the seconds before a retry: random, up to a bound that doubles each time.

    Requests that failed together are so spread over time instead of being repeated together.

    Args:
        number: Number of earlier retries.
    """
    return random.uniform(0, min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**number))
