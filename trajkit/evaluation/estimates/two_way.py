"""Estimate how much a mean varies with other held-out worlds and other training seeds of the method.

Every model of a group plays every world, so worlds and models are crossed. The variance is that of a two-way
table with random rows and columns (H. Scheffé, "The Analysis of Variance" (1959), §7.4), with the degrees of
freedom of F. E. Satterthwaite, Biometrics Bulletin 2 (1946). A single model has no spread between models: its
interval is about that model only.

Worlds that are one room (tasks of an environment under the same seed) are not independent samples: they vary
together, and a room counts once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from trajkit.curation.statistics.intervals import share_bounds, t_quantile
from trajkit.evaluation.estimates.resample import Bounds, Floats, Ints


class Spread(NamedTuple):
    """The variance of a mean, and its degrees of freedom."""

    variance: float
    degrees: float
    """Degrees of freedom, above 0."""

    def bounds(
        self, mean: float, n: int, confidence: float, *, least: float = -math.inf, most: float = math.inf
    ) -> Bounds:
        """Return the interval of the mean.

        Args:
            mean: The mean itself.
            n: Number of worlds or rooms, for a share whose worlds all have the same value.
            confidence: Confidence of the interval.
            least: Smallest value. If none is negative, neither are the bounds.
            most: Largest value. If all values are from 0 to 1, so are the bounds.
        """
        if least >= 0 and most <= 1:
            return Bounds(*share_bounds(mean, self.variance, n, self.degrees, confidence=confidence))
        half = t_quantile((1 + confidence) / 2, self.degrees) * math.sqrt(self.variance)
        return Bounds(max(mean - half, 0.0) if least >= 0 else mean - half, mean + half)


def n_crossed(played: Floats | None, strata: Ints) -> int:
    """Count the models that together played at least two worlds of each stratum; 1 where they did not.

    Args:
        played: Values as worlds by models; NaN where a model has no value. None if there is one model.
        strata: Stratum of each world, from 0 without gaps.
    """
    if played is None or played.shape[1] < 2:
        return 1
    n_together = np.bincount(strata, weights=np.isfinite(played).all(axis=1))
    return played.shape[1] if n_together.min() >= 2 else 1


def n_rooms(rooms: Ints | None) -> int | None:
    """Count the rooms; None if each world is a room of its own."""
    found = None if rooms is None else len(np.unique(rooms))
    return None if rooms is None or found == len(rooms) else found


def spread(
    per_world: Floats,
    strata: Ints,
    groups: Iterable[Floats | None] = (),
    rooms: Ints | None = None,
) -> Spread | None:
    """Compute the variance of a mean over strata that weigh the same.

    Args:
        per_world: One value per world: the mean over the models, or a difference of such means.
        strata: Stratum of each world, from 0 without gaps.
        groups: Values as worlds by models for each group in the mean, as in `n_crossed`; a group for which
            that is 1 adds nothing.
        rooms: Room of each world; None if each world is a room of its own.

    Returns:
        None if a stratum has a single world.
    """
    parts = [per_world[strata == place] for place in range(int(strata.max()) + 1)]
    if min(map(len, parts)) < 2:
        return None
    variance = math.fsum(float(part.var(ddof=1)) / len(part) for part in parts) / len(parts) ** 2
    degrees_of_worlds = len(per_world) - len(parts)
    if rooms is not None and (n := n_rooms(rooms)) is not None and n > 1:
        variance, degrees_of_worlds = _between_rooms(per_world, strata, rooms), n - 1
    squares = variance**2 / degrees_of_worlds
    for played in groups:
        if played is None or n_crossed(played, strata) < 2:
            continue
        together = np.isfinite(played).all(axis=1)
        between, within, degrees = _between_models(played[together], strata[together])
        if between > within:
            variance += between - within
            squares += between**2 / (played.shape[1] - 1) + within**2 / degrees
    return Spread(variance, variance**2 / squares if squares else float(degrees_of_worlds))


def _between_rooms(per_world: Floats, strata: Ints, rooms: Ints) -> float:
    """Compute the variance of the mean where the worlds of a room are correlated: rooms' sums, squared.

    K.-Y. Liang & S. L. Zeger, "Longitudinal data analysis using generalized linear models", Biometrika 73
    (1986), for a mean over strata; where every room is in every stratum, s² / n of the rooms' means. A
    stratum of r rooms has r - 1 degrees of freedom, however many worlds a room has.
    """
    n = np.bincount(strata).astype(np.float64)
    own = np.bincount(strata, weights=per_world) / n
    n_rooms_in = np.bincount(np.unique(np.stack([strata, rooms]), axis=1)[0])
    left = 1 - 1 / np.where(n_rooms_in > 1, n_rooms_in, n)
    added = (per_world - own[strata]) / (n * np.sqrt(left))[strata] / len(n)
    return float((np.bincount(np.unique(rooms, return_inverse=True)[1], weights=added) ** 2).sum())


def _between_models(played: Floats, strata: Ints) -> tuple[float, float, int]:
    """Return the variance of the mean over models, the part that worlds alone explain, and its degrees."""
    n_models = played.shape[1]
    means, residual, degrees = np.zeros(n_models), 0.0, 0
    n_strata = int(strata.max()) + 1
    for place in range(n_strata):
        mine = played[strata == place]
        own = mine.mean(axis=0)
        left = mine - mine.mean(axis=1, keepdims=True) - own + own.mean()
        n = len(mine)
        residual += float((left**2).sum()) / ((n - 1) * (n_models - 1)) / n
        degrees += (n - 1) * (n_models - 1)
        means += own / n_strata
    return float(means.var(ddof=1)) / n_models, residual / n_strata**2 / n_models, degrees
