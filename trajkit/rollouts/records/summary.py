"""Summarize a policy: each number as mean ± standard error, per task and over tasks with equal weight."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trajkit.rollouts.records.record import RETURN_METRIC, Played
from trajkit.schema import Outcome

ALL_TASKS = "all"
_AVERAGED = ("total_reward", "length", "n_input_tokens", "n_output_tokens")
"""Values that a row averages, besides successes."""


class Mean(NamedTuple):
    """An average with its standard error."""

    mean: float
    standard_error: float | None
    """None for a single value."""
    n: int
    """Number of values."""


class Score(NamedTuple):
    """The values of one episode for the table."""

    variant: str
    task: str
    error: str | None
    """Kind of the failure that ended it; the other numbers then say nothing about the policy."""
    is_success: bool
    total_reward: float
    n_steps: int
    n_input_tokens: int | None
    n_output_tokens: int | None
    n_invalid: int


class Row(NamedTuple):
    """One line of the table."""

    variant: str
    task: str
    n_episodes: int
    """Episodes played to their end; the means are over these."""
    errors: dict[str, int]
    """Episodes that ended by a failure of a service or of the environment, by its kind."""
    n_steps: int
    """Actions in those episodes."""
    n_invalid: int
    """Answers among them that named no action."""
    success: Mean | None
    """Share of successes; the means are None when there is nothing to average."""
    total_reward: Mean | None
    length: Mean | None
    n_input_tokens: Mean | None
    """Tokens of an episode's prompts; None when a provider did not report them."""
    n_output_tokens: Mean | None

    @property
    def n_errors(self) -> int:
        """Episodes that ended by a failure of any kind."""
        return sum(self.errors.values())


def score(played: Played) -> Score:
    """Return the table's values of an episode."""
    return Score(
        variant=played.job.variant,
        task=played.job.task,
        error=None if played.fault is None else played.fault.kind.value,
        is_success=played.outcome == Outcome.SUCCESS,
        total_reward=played.metrics.get(RETURN_METRIC, 0.0),
        n_steps=len(played.steps),
        n_input_tokens=played.n_input_tokens,
        n_output_tokens=played.n_output_tokens,
        n_invalid=played.n_invalid,
    )


class Moments:
    """Mean and variance of a stream of values, by Welford's method, without storing them."""

    def __init__(self) -> None:
        self.n = 0
        self._mean = self._squares = 0.0

    def add(self, value: float) -> None:
        """Add a value."""
        self.n += 1
        before = value - self._mean
        self._mean += before / self.n
        self._squares += before * (value - self._mean)

    def mean(self) -> Mean | None:
        """Return the mean and its standard error, s / √n with s over n - 1; None without values."""
        if self.n == 0:
            return None
        error = None if self.n == 1 else math.sqrt(self._squares / (self.n - 1) / self.n)
        return Mean(self._mean, error, self.n)


def proportion(n_successes: int, n: int) -> Mean | None:
    """Return a share and its standard error, √(p (1 - p) / n); None without values."""
    if n == 0:
        return None
    share = n_successes / n
    return Mean(share, math.sqrt(share * (1 - share) / n), n)


def stratified(means: Sequence[Mean | None]) -> Mean | None:
    """Return the mean of equally weighted means, with s.e. √(Σ s.e.²) / k; None when one is missing."""
    known = [one for one in means if one is not None]
    if not known or len(known) < len(means):
        return None
    errors = [one.standard_error for one in known if one.standard_error is not None]
    error = math.sqrt(math.fsum(e * e for e in errors)) / len(known) if len(errors) == len(known) else None
    return Mean(math.fsum(one.mean for one in known) / len(known), error, sum(one.n for one in known))


class Table:
    """Builds rows episode by episode; memory does not grow with the number of episodes."""

    def __init__(self) -> None:
        self.n_ended = 0
        """Episodes played to their end."""
        self._groups: dict[str, dict[str, _Group]] = {}

    def add(self, one: Score) -> None:
        """Add an episode."""
        self.n_ended += one.error is None
        self._groups.setdefault(one.variant, {}).setdefault(one.task, _Group()).add(one)

    def rows(self, order: Sequence[str] = ()) -> list[Row]:
        """Return a row per variant and task; after several tasks, one over all of them.

        Args:
            order: Variants and tasks in their order in the table; others follow in the order added.
        """
        rows = []
        for variant in _ordered(self._groups, order):
            by_task = self._groups[variant]
            of_variant = [by_task[task].row(variant, task) for task in _ordered(by_task, order)]
            rows += of_variant
            if len(of_variant) > 1:
                rows.append(_over_tasks(of_variant))
        return rows


def _ordered(names: Iterable[str], order: Sequence[str]) -> list[str]:
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


class _Group:
    """The episodes of one variant and task."""

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()
        self.n = self.n_successes = self.n_steps = self.n_invalid = 0
        self.moments = {name: Moments() for name in _AVERAGED}

    def add(self, one: Score) -> None:
        if one.error is not None:
            self.errors[one.error] += 1
            return
        self.n += 1
        self.n_successes += one.is_success
        self.n_steps += one.n_steps
        self.n_invalid += one.n_invalid
        values = (one.total_reward, one.n_steps, one.n_input_tokens, one.n_output_tokens)
        for moments, value in zip(self.moments.values(), values, strict=True):
            if value is not None:
                moments.add(value)

    def row(self, variant: str, task: str) -> Row:
        return Row(
            variant=variant,
            task=task,
            n_episodes=self.n,
            errors=dict(self.errors),
            n_steps=self.n_steps,
            n_invalid=self.n_invalid,
            success=proportion(self.n_successes, self.n),
            **{name: each.mean() if each.n == self.n else None for name, each in self.moments.items()},
        )


def _over_tasks(rows: Sequence[Row]) -> Row:
    errors: Counter[str] = Counter()
    for row in rows:
        errors.update(row.errors)
    return Row(
        variant=rows[0].variant,
        task=ALL_TASKS,
        n_episodes=sum(row.n_episodes for row in rows),
        errors=dict(errors),
        n_steps=sum(row.n_steps for row in rows),
        n_invalid=sum(row.n_invalid for row in rows),
        **{name: stratified([getattr(row, name) for row in rows]) for name in ("success", *_AVERAGED)},
    )
