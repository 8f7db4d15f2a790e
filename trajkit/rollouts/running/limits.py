"""The limits of a run on calls, money and time, and its use so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from trajkit.errors import ServiceError
from trajkit.schema import Episode, Transition

_MILLION = 1_000_000


class Prices(NamedTuple):
    """Prices of a model."""

    input_usd: float
    """US dollars per million tokens of prompts."""
    output_usd: float
    """US dollars per million tokens of answers."""

    def cost_usd(self, n_input_tokens: float, n_output_tokens: float) -> float:
        """Return the cost of a number of tokens, in US dollars."""
        return (self.input_usd * n_input_tokens + self.output_usd * n_output_tokens) / _MILLION

    def priced(self, episode: Episode) -> Episode:
        """Add the cost of each answer whose tokens are known and whose cost the service did not report."""
        return episode.model_copy(update={"steps": tuple(map(self._priced, episode.steps))})

    def _priced(self, step: Transition) -> Transition:
        if step.cost_usd is not None or step.n_input_tokens is None or step.n_output_tokens is None:
            return step
        return step.model_copy(update={"cost_usd": self.cost_usd(step.n_input_tokens, step.n_output_tokens)})


class Limits(NamedTuple):
    """Limits of a run; None for no limit."""

    max_calls: int | None = None
    """Requests to a model, including retries."""
    max_cost_usd: float | None = None
    """Cost in US dollars."""
    max_minutes: float | None = None
    """Minutes since the run began."""


class LimitReached(Exception):
    """The run has reached a limit; the runner ends it cleanly. Never leaves the runner."""

    def __init__(self, option: str, reached: str) -> None:
        super().__init__(f"{option} is reached: {reached}")
        self.option = option
        self.reached = reached


class Budget:
    """Counts calls, tokens and cost, and checks the limits.

    Args:
        limits: The limits.
        prices: The prices of tokens; None when unknown.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        prices: Prices | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits or Limits()
        self.prices = prices
        self.n_calls = 0
        """Requests sent to a model."""
        self.n_input_tokens = self.n_output_tokens = 0
        """Reported tokens."""
        self.n_unmetered = 0
        """Answers without a reported number of tokens."""
        self.cost_usd = 0.0
        """Cost of the answers, as far as it is known."""
        self._n_open = 0
        self._dearest_usd = 0.0
        self._clock = clock
        self._began = clock()

    def check_time(self) -> None:
        """Check the time limit.

        Raises:
            LimitReached: The time is up.
        """
        minutes = self.limits.max_minutes
        if minutes is not None and self._clock() - self._began >= minutes * 60:
            raise LimitReached("--max-minutes", f"{minutes:g} min")

    def begin_call(self) -> None:
        """Record a request before it is sent.

        The cost of requests in flight is unknown; each is assumed to cost the maximum so far.

        Raises:
            LimitReached: The request must not be sent.
        """
        self.check_time()
        n, usd = self.limits.max_calls, self.limits.max_cost_usd
        if n is not None and self.n_calls >= n:
            raise LimitReached("--max-calls", f"{self.n_calls:,} calls")
        if usd is not None and self.cost_usd + (self._n_open + 1) * self._dearest_usd > usd:
            raise LimitReached("--max-cost-usd", f"{self.cost_usd:.4f} of {usd:g} USD")
        self.n_calls += 1
        self._n_open += 1

    def end_call(self) -> None:
        """Record the end of a request, answered or not."""
        self._n_open -= 1

    def spend(
        self, *, n_input_tokens: int | None, n_output_tokens: int | None, cost_usd: float | None = None
    ) -> None:
        """Record the usage of an answer.

        Args:
            n_input_tokens: Tokens of the prompt; None when unknown.
            n_output_tokens: Tokens of the answer; None when unknown.
            cost_usd: Its cost if the service reports it; None computes it from the prices.

        Raises:
            ServiceError: There is a cost limit, and the cost of this answer is unknown.
        """
        self.n_input_tokens += n_input_tokens or 0
        self.n_output_tokens += n_output_tokens or 0
        is_metered = n_input_tokens is not None and n_output_tokens is not None
        self.n_unmetered += not is_metered
        if cost_usd is None and self.prices is not None and is_metered:
            cost_usd = self.prices.cost_usd(n_input_tokens or 0, n_output_tokens or 0)
        if cost_usd is None:
            if self.limits.max_cost_usd is not None:
                raise ServiceError(
                    "--max-cost-usd cannot be kept: the model does not report the tokens of its answers",
                    hint="limit the run with --max-calls or --max-minutes",
                )
            return
        self.cost_usd += cost_usd
        self._dearest_usd = max(self._dearest_usd, cost_usd)
