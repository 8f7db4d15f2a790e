"""Resample worlds within their tasks, to estimate how much means over tasks vary with other seeds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_DRAWS_AT_ONCE = 4_000_000
"""Indices drawn at a time: 32 MB."""


class Resampling(NamedTuple):
    """Settings of the bootstrap; the same settings give the same bounds."""

    resamples: int = 10_000
    """Number of resamples."""
    seed: int = 0
    """Seed of the draws."""
    confidence: float = 0.95
    """Confidence of the intervals, between 0 and 1."""


class Bounds(NamedTuple):
    """Both ends of an interval; None if the values do not determine one."""

    low: float | None
    high: float | None


NOTHING = Bounds(None, None)


def resampled(values: Floats, tasks: Ints, how: Resampling) -> Floats:
    """Compute means of resamples drawn with replacement within each task.

    B. Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7 (1979), with tasks as
    strata. All columns of a resample come from the same worlds.

    Args:
        values: Values as worlds by measures; NaN where nothing was measured, which every mean leaves out.
        tasks: The task of each world, from 0 without gaps.
        how: Number of resamples and seed.

    Returns:
        Means as tasks by resamples by measures; NaN where a resample has no value.
    """
    chance = np.random.default_rng(how.seed)
    n_tasks = int(tasks.max()) + 1 if len(tasks) else 0
    means = np.full((n_tasks, how.resamples, values.shape[1]), np.nan)
    for task in range(n_tasks):
        mine = values[tasks == task]
        known = np.isfinite(mine)
        filled = np.where(known, mine, 0.0)
        is_whole = bool(known.all())
        at_once = max(1, _DRAWS_AT_ONCE // len(mine))
        for start in range(0, how.resamples, at_once):
            drawn = chance.integers(0, len(mine), size=(min(at_once, how.resamples - start), len(mine)))
            here = means[task, start : start + len(drawn)]
            for column in range(values.shape[1]):
                total = filled[drawn, column].sum(axis=1)
                n = np.full(len(drawn), len(mine)) if is_whole else known[drawn, column].sum(axis=1)
                np.divide(total, n, out=here[:, column], where=n > 0)
    return means


def percentiles(draws: Floats, confidence: float) -> Bounds:
    """Return the percentile interval of resampled values; a resample without a value is left out."""
    known = draws[~np.isnan(draws)]
    if not len(known):
        return NOTHING
    # no interpolation: a value between a number and infinity has no meaning
    low, high = np.quantile(
        known, [(1 - confidence) / 2, (1 + confidence) / 2], method="inverted_cdf"
    ).tolist()
    return Bounds(low, high if np.isfinite(high) else None)
