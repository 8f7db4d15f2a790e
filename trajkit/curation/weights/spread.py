"""Describe the distribution of weights over the steps of a store by task, with effective sample sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trajkit.curation.statistics.intervals import Values, effective_size
from trajkit.schema.base import Count, Model, Text

Numbers = npt.NDArray[np.float64]


class Spread(Model):
    """Distribution of the weights of learned steps, of one task or of all."""

    task: Text | None = None
    """`env_id/task`, or the one of both that is known; None for all together."""
    n_episodes: Count
    """Episodes with a step that was learned before."""
    n_steps: Count
    """Steps that were learned before."""
    n_zero: Count
    """Steps that now have the weight 0, and are only context."""
    n_negative: Count
    """Steps that now have a weight below 0."""
    least: float
    """The smallest weight."""
    quarter: float
    """First quartile."""
    median: float
    three_quarters: float
    """Third quartile."""
    most: float
    """The largest weight."""
    mean: float
    n_effective_steps: float
    """Effective sample size of the steps: (Σ|w|)² / Σw² (L. Kish, Survey Sampling, 1965, §11.7). A negative
    weight counts with its size, because it changes a model as much as a positive one. 0 if all are 0."""
    n_effective_episodes: float
    """The same for the sums over each episode, because the steps of an attempt are not independent."""


class Weights(NamedTuple):
    """The weights of the learned steps, in the order of episodes and steps."""

    episodes: npt.NDArray[np.int64]
    """The number of each step's episode."""
    values: Numbers
    tasks: Sequence[str]
    """The names of the tasks, in order."""
    task_of: npt.NDArray[np.int64]
    """The place in `tasks` for each number of an episode."""


def spreads(weights: Weights) -> tuple[Spread, tuple[Spread, ...]]:
    """Return the distribution over the whole store, and by task in the order of their names.

    Args:
        weights: Of at least one step.
    """
    episodes, values, tasks, task_of = weights

    def spread(task: str | None, chosen: Any = slice(None)) -> Spread:
        mine, of_episode = values[chosen], episodes[chosen]
        firsts = np.flatnonzero(np.diff(of_episode, prepend=-1))
        return _spread(task, mine, np.add.reduceat(np.abs(mine), firsts))

    places = task_of[episodes]
    by_task = (spread(tasks[place], places == place) for place in np.unique(places).tolist())
    return spread(None), tuple(by_task)


def _spread(task: str | None, values: Numbers, of_episodes: Numbers) -> Spread:
    least, quarter, median, three_quarters, most = (
        float(each) for each in np.quantile(values, (0, 0.25, 0.5, 0.75, 1))
    )
    return Spread(
        task=task,
        n_episodes=len(of_episodes),
        n_steps=len(values),
        n_zero=int((values == 0).sum()),
        n_negative=int((values < 0).sum()),
        least=least,
        quarter=quarter,
        median=median,
        three_quarters=three_quarters,
        most=most,
        mean=math.fsum((values / len(values)).tolist()),
        n_effective_steps=_effective(values),
        n_effective_episodes=_effective(of_episodes),
    )


def _effective(values: Numbers) -> float:
    return effective_size(Values(*np.unique(np.abs(values), return_counts=True))) or 0.0
