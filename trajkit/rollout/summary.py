"""How a policy did: each number as mean ± standard error, per task and over tasks that weigh the same."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trajkit.rollout.record import RETURN_METRIC, Played
from trajkit.schema import Outcome

ALL_TASKS = "all"


class Mean(NamedTuple):
    """An average with its standard error."""

    mean: float
    standard_error: float | None
    """None for a single value, of which nothing can be said."""
    n: int
    """How many values."""


class Score(NamedTuple):
    """What the table needs of one episode."""

    variant: str
    task: str
    is_error: bool
    """A service failed; the other numbers say nothing of the policy."""
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
    n_errors: int
    """Episodes that a service's failure ended."""
    n_steps: int
    """Actions in those episodes."""
    n_invalid: int
    """Answers among them that named no action."""
    success: Mean | None
    """Share of successes; the means are None when there is nothing to average."""
    total_reward: Mean | None
    length: Mean | None
    n_input_tokens: Mean | None
    """Tokens of an episode's prompts; None when a provider did not count them."""
    n_output_tokens: Mean | None


def score(played: Played) -> Score:
    """What the table needs of an episode."""
    return Score(
        variant=played.job.variant,
        task=played.job.task,
        is_error=played.fault is not None,
        is_success=played.outcome == Outcome.SUCCESS,
        total_reward=played.metrics.get(RETURN_METRIC, 0.0),
        n_steps=len(played.steps),
        n_input_tokens=played.n_input_tokens,
        n_output_tokens=played.n_output_tokens,
        n_invalid=played.n_invalid,
    )


def mean(values: Sequence[float]) -> Mean | None:
    """The mean and its standard error, s / √n with s over n - 1; None of nothing."""
    n = len(values)
    if n == 0:
        return None
    average = math.fsum(values) / n
    if n == 1:
        return Mean(average, None, 1)
    variance = math.fsum((value - average) ** 2 for value in values) / (n - 1)
    return Mean(average, math.sqrt(variance / n), n)


def proportion(n_successes: int, n: int) -> Mean | None:
    """A share and its standard error, √(p (1 - p) / n); None of nothing."""
    if n == 0:
        return None
    share = n_successes / n
    return Mean(share, math.sqrt(share * (1 - share) / n), n)


def stratified(means: Sequence[Mean | None]) -> Mean | None:
    """The mean of means that weigh the same, with standard error √(Σ s.e.²) / k; None when one is missing."""
    known = [one for one in means if one is not None]
    if not known or len(known) < len(means):
        return None
    errors = [one.standard_error for one in known if one.standard_error is not None]
    error = math.sqrt(math.fsum(e * e for e in errors)) / len(known) if len(errors) == len(known) else None
    return Mean(math.fsum(one.mean for one in known) / len(known), error, sum(one.n for one in known))


def summarise(scores: Iterable[Score]) -> list[Row]:
    """A row per variant and task, in order of appearance; after several tasks, one over all of them."""
    groups: dict[str, dict[str, list[Score]]] = {}
    for one in scores:
        groups.setdefault(one.variant, {}).setdefault(one.task, []).append(one)
    rows = []
    for by_task in groups.values():
        of_variant = [_row(group) for group in by_task.values()]
        rows += of_variant
        if len(of_variant) > 1:
            rows.append(_over_tasks(of_variant))
    return rows


def _row(group: Sequence[Score]) -> Row:
    ended = [one for one in group if not one.is_error]
    return Row(
        variant=group[0].variant,
        task=group[0].task,
        n_episodes=len(ended),
        n_errors=len(group) - len(ended),
        n_steps=sum(one.n_steps for one in ended),
        n_invalid=sum(one.n_invalid for one in ended),
        success=proportion(sum(one.is_success for one in ended), len(ended)),
        total_reward=mean([one.total_reward for one in ended]),
        length=mean([one.n_steps for one in ended]),
        n_input_tokens=_mean_if_known([one.n_input_tokens for one in ended]),
        n_output_tokens=_mean_if_known([one.n_output_tokens for one in ended]),
    )


def _mean_if_known(values: Sequence[int | None]) -> Mean | None:
    known = [value for value in values if value is not None]
    return mean(known) if len(known) == len(values) else None


def _over_tasks(rows: Sequence[Row]) -> Row:
    return Row(
        variant=rows[0].variant,
        task=ALL_TASKS,
        n_episodes=sum(row.n_episodes for row in rows),
        n_errors=sum(row.n_errors for row in rows),
        n_steps=sum(row.n_steps for row in rows),
        n_invalid=sum(row.n_invalid for row in rows),
        success=stratified([row.success for row in rows]),
        total_reward=stratified([row.total_reward for row in rows]),
        length=stratified([row.length for row in rows]),
        n_input_tokens=stratified([row.n_input_tokens for row in rows]),
        n_output_tokens=stratified([row.n_output_tokens for row in rows]),
    )
