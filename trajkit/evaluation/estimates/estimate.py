"""Estimate the means of one group over tasks of equal weight, with standard error and interval.

A world (environment, task and seed) counts once: several attempts at it are averaged, because they are not
independent samples. Where several models of a group (training seeds of one method) played each world, the
interval is about the method (`two_way`); otherwise it is about this model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from trajkit.curation.statistics.intervals import wilson_bounds
from trajkit.evaluation.estimates.resample import (
    NOTHING,
    Bounds,
    Floats,
    Ints,
    Resampling,
    percentiles,
    resampled,
)
from trajkit.evaluation.estimates.two_way import n_crossed, n_rooms, spread
from trajkit.schema import Model
from trajkit.schema.base import Count, Name

SUCCESS = "success"
"""The measure of an episode's outcome: 1 for a success, 0 for a failure or truncation."""

SHARES = frozenset({SUCCESS, "invalid"})
"""Measures between 0 and 1. Wilson's interval covers them even where all worlds have the same value."""


class Estimate(Model):
    """A mean of one group."""

    metric: Name
    """Name of the measure."""
    task: str | None = None
    """Task as `env_id/task`; None for the mean over all tasks, each with the same weight."""
    value: float
    """The mean."""
    standard_error: float | None
    """Standard error of the mean: √(Σ s²/n) / k over k tasks, with s² over n - 1, plus the variance between
    models if there are several; None if a task has a single world."""
    low: float | None
    """Lower bound; None if there is no interval, such as for worlds that all have the same value."""
    high: float | None
    """Upper bound."""
    n: Count
    """Number of worlds with a value."""
    n_rooms: Count | None = None
    """Number of distinct rooms among them, which the interval treats as the samples; None if each world is
    a room of its own."""
    n_models: Count = 1
    """Number of models in the interval. Above 1, it is about the method that trained them; otherwise it is
    about this model."""


def estimates(
    values: Mapping[str, Floats],
    tasks: Sequence[str],
    places: Ints,
    how: Resampling,
    by_model: Mapping[str, Floats] | None = None,
    rooms: Ints | None = None,
    *,
    has_groups: bool = False,
) -> Iterator[Estimate]:
    """Compute the means of one group: over all tasks, then per task if there are several.

    Success has Wilson's score interval; other measures have the percentiles of the bootstrap within tasks.
    Over several tasks, Wilson's number of trials is the effective one, k² / Σ(1/n): E. L. Korn &
    B. I. Graubard, "Confidence intervals for proportions with small expected number of positive counts",
    Survey Methodology 24 (1998). It is valid also where all worlds succeed or none does. Where worlds were
    played several times or share a room, and where several models played them, intervals are from `two_way`.

    Args:
        values: Values by measure, one per world; NaN where nothing was measured.
        tasks: Task names, in the order of their indices.
        places: Index of each world's task.
        how: Resamples, seed and confidence.
        by_model: Values by measure as worlds by models; None if there is one model.
        rooms: Room of each world; None if each world is a room of its own.
        has_groups: Whether rooms are groups of prompts, which alone count as trials.
    """
    if not len(places):
        return
    is_by_task = len(tasks) > 1
    present, places = np.unique(places, return_inverse=True)
    drawn = [name for name in values if name != SUCCESS]
    strata = strata_of(places)
    columns = np.stack([values[name] for name in drawn], axis=1) if drawn else np.empty((len(places), 0))
    total = resampled(columns, strata, how)
    by_task = total if strata is places else resampled(columns, places, how)
    for metric, value in values.items():
        column = drawn.index(metric) if metric in drawn else None
        played = (by_model or {}).get(metric)
        of_all = None if column is None else total[:, :, column].mean(axis=0)
        found = _estimate(
            metric, None, value, strata, of_all, how.confidence, played, rooms, has_groups=has_groups
        )
        if found is None:
            continue
        yield found
        for place, task in enumerate(tasks[at] for at in present if is_by_task):
            of_task = None if column is None else by_task[place, :, column]
            here = places == place
            own = None if played is None else played[here]
            mine = _estimate(metric, task, value[here], places[here], of_task, how.confidence, own)
            if mine is not None:
                yield mine


def _estimate(
    metric: str,
    task: str | None,
    value: Floats,
    strata: Ints,
    draws: Floats | None,
    confidence: float,
    played: Floats | None = None,
    rooms: Ints | None = None,
    *,
    has_groups: bool = False,
) -> Estimate | None:
    """Compute one mean, from resampled ones (None for success); None if a task has no value."""
    known = np.isfinite(value)
    parts = [value[known & (strata == place)] for place in np.unique(strata)]
    if not all(len(part) for part in parts):
        return None
    mean = mean_over(parts)
    places = np.unique(strata[known], return_inverse=True)[1]
    models = None if played is None else played[known]
    here = None if rooms is None else rooms[known]
    n_models, moved = n_crossed(models, places), spread(value[known], places, [models], here)
    shared = n_rooms(here)
    # attempts at the same world that ended differently are not a single trial
    is_repeated = metric == SUCCESS and not all(np.isin(part, (0, 1)).all() for part in parts)
    is_by_spread = n_models > 1 or shared is not None or is_repeated
    if moved is not None and moved.variance > 0 and is_by_spread:
        least, most = (float(end(value[known])) for end in (np.min, np.max))
        bounds = moved.bounds(mean, shared or int(known.sum()), confidence, least=least, most=most)
    elif draws is None or (metric in SHARES and is_constant(parts)):
        effective = len(parts) ** 2 / math.fsum(1 / len(part) for part in parts)
        if has_groups and shared is not None:
            effective = shared
        bounds = Bounds(*wilson_bounds(mean, effective, confidence=confidence))
    else:
        bounds = NOTHING if is_constant(parts) else percentiles(draws, confidence)
    return Estimate(
        metric=metric,
        task=task,
        value=mean,
        standard_error=None if moved is None else math.sqrt(moved.variance),
        low=bounds.low,
        high=bounds.high,
        n=int(known.sum()),
        n_rooms=shared,
        n_models=n_models,
    )


def strata_of(places: Ints) -> Ints:
    """Return the strata to resample: the tasks, or one stratum where some task has a single world."""
    return places if np.bincount(places).min() > 1 else np.zeros_like(places)


def mean_over(parts: Sequence[Floats]) -> float:
    """Return the mean of the parts' means."""
    return math.fsum(math.fsum(part.tolist()) / len(part) for part in parts) / len(parts)


def is_constant(parts: Sequence[Floats]) -> bool:
    """Check whether all resamples would be equal, so that they cannot measure chance."""
    return all(bool((part == part[0]).all()) for part in parts)
