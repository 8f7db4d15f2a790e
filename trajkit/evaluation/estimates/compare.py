"""Compare two groups on the same worlds: difference by task and seed, its interval, and McNemar's test."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trajkit.curation.statistics.intervals import wilson_bounds
from trajkit.evaluation.estimates.estimate import SHARES, SUCCESS, is_constant, mean_over, strata_of
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

FEWEST_PAIRS = 10
"""The fewest pairs for which an interval is computed; a bootstrap of fewer pairs varies too little."""


class Comparison(Model):
    """The difference between a candidate and a baseline over the worlds that both played."""

    baseline: Name
    """Name of the group compared against."""
    candidate: Name
    """Name of the group that is compared with it."""
    metric: Name
    """Name of the measure."""
    task: str | None = None
    """Task as `env_id/task`; None for the mean over all tasks, each with the same weight."""
    baseline_value: float
    """Mean of the baseline over these worlds."""
    candidate_value: float
    """Mean of the candidate over the same worlds."""
    difference: float
    """Candidate minus baseline."""
    standard_error: float | None
    """Standard error of the difference; None if a task has a single pair."""
    low: float | None
    """Lower bound of the difference; None if `note` gives the reason."""
    high: float | None
    """Upper bound of the difference."""
    n_pairs: Count
    """Worlds (environment, task and seed) that both groups played and for which both have a value."""
    n_rooms: Count | None = None
    """Number of distinct rooms among these worlds, which the interval treats as the samples; None if each
    world is a room of its own."""
    n_baseline_only: Count | None = None
    """For success: pairs in which only the baseline succeeded; None if worlds were played repeatedly."""
    n_candidate_only: Count | None = None
    """For success: pairs in which only the candidate succeeded."""
    p_value: float | None = None
    """For success: p-value of McNemar's exact two-sided test; None if `note` gives the reason."""
    note: str | None = None
    """Reason why the interval or the test is missing."""
    n_models: Count = 1
    """Number of the candidate's models in the interval. Above 1, it is about the method that trained them;
    otherwise it is about this model."""


class Pairs(NamedTuple):
    """The values of two groups on the same worlds."""

    baseline: Mapping[str, Floats]
    """Baseline values by measure, one per world; NaN where nothing was measured."""
    candidate: Mapping[str, Floats]
    """Candidate values, in the same shape."""
    places: Ints
    """Index of each world's task."""
    baseline_by_model: Mapping[str, Floats] = {}
    """Baseline values by measure as worlds by models, where several of its models played them."""
    candidate_by_model: Mapping[str, Floats] = {}
    """Candidate values, in the same shape."""
    rooms: Ints | None = None
    """Room of each world; None if each world is a room of its own."""
    has_groups: bool = False
    """Whether the rooms are groups of prompts, such as those of a customer: of few groups there is neither an
    interval nor a test."""


class _Side(NamedTuple):
    """One side of a comparison, on the worlds where both sides have a value."""

    value: Floats
    """One value per world."""
    by_model: Floats | None
    """Worlds by models; None if there is one model."""

    def of(self, mask: npt.NDArray[np.bool_]) -> _Side:
        """Return the side restricted to the masked worlds."""
        return _Side(self.value[mask], None if self.by_model is None else self.by_model[mask])


def compare(
    names: tuple[str, str], pairs: Pairs, tasks: Sequence[str], how: Resampling, metrics: Sequence[str]
) -> Iterator[Comparison]:
    """Compute the differences by measure: over all tasks, then per task if there are several.

    A measure that a group lacks is left out, and so is a task without values for it.

    Args:
        names: Names of the baseline and the candidate.
        pairs: Values of both on the same worlds.
        tasks: Task names, in the order of their indices.
        how: Resamples, seed and confidence.
        metrics: Measures to compare.
    """
    for metric in metrics:
        one = _Side(pairs.baseline[metric], pairs.baseline_by_model.get(metric))
        other = _Side(pairs.candidate[metric], pairs.candidate_by_model.get(metric))
        known = np.isfinite(one.value) & np.isfinite(other.value)
        if not known.any():
            continue
        places = pairs.places[known]
        rooms = None if pairs.rooms is None else pairs.rooms[known]
        yield _compared(
            names, metric, None, one.of(known), other.of(known), places, how, rooms, pairs.has_groups
        )
        present = np.unique(places)
        for place in present if len(tasks) > 1 else ():
            mine = known & (pairs.places == place)
            alone = np.zeros(int(mine.sum()), dtype=np.int64)
            yield _compared(names, metric, tasks[place], one.of(mine), other.of(mine), alone, how)


def _compared(
    names: tuple[str, str],
    metric: str,
    task: str | None,
    first: _Side,
    second: _Side,
    places: Ints,
    how: Resampling,
    rooms: Ints | None = None,
    has_groups: bool = False,
) -> Comparison:
    strata = strata_of(np.unique(places, return_inverse=True)[1].astype(np.int64))
    one, other = first.value, second.value
    gain = other - one
    parts = [gain[strata == place] for place in range(int(strata.max()) + 1)]
    baseline = mean_over([one[strata == place] for place in range(len(parts))])
    candidate = mean_over([other[strata == place] for place in range(len(parts))])
    difference = mean_over(parts)
    moved = spread(gain, strata, [first.by_model, second.by_model], rooms)
    shared = n_rooms(rooms)
    n_models = n_crossed(second.by_model, strata)
    is_by_spread = max(n_models, n_crossed(first.by_model, strata)) > 1 or (shared or 0) >= FEWEST_PAIRS
    why: str | None
    if has_groups and shared is not None and shared < FEWEST_PAIRS:
        bounds, why = NOTHING, f"too few groups for an interval: {shared}, not {FEWEST_PAIRS}"
    elif has_groups and rooms is not None and shared is not None and not (moved and moved.variance > 0):
        bounds, why = _of_equal_groups(metric, one, other, rooms, how.confidence)
    elif is_by_spread and moved and moved.variance > 0:
        bounds, why = (
            _within(moved.bounds(difference, len(gain), how.confidence), one, other),
            None,
        )
    else:
        bounds, why = _interval(metric, one, other, strata, how)
    tested, untested = _tested(one, other, 1 - how.confidence) if metric == SUCCESS else ({}, None)
    if has_groups and shared is not None:  # McNemar's pairs are independent, and those of a group are not
        tested, untested = {name: n for name, n in tested.items() if name != "p_value"}, None
    notes = [each for each in (why, untested) if each]
    return Comparison(
        baseline=names[0],
        candidate=names[1],
        metric=metric,
        task=task,
        baseline_value=baseline,
        candidate_value=candidate,
        difference=difference,
        standard_error=None if moved is None else math.sqrt(moved.variance),
        low=bounds.low,
        high=bounds.high,
        n_pairs=len(gain),
        n_rooms=shared,
        n_models=n_models,
        note="; ".join(notes) or None,
        **tested,
    )


def _within(bounds: Bounds, one: Floats, other: Floats) -> Bounds:
    """Limit the bounds of a difference of shares to the range from -1 to 1."""
    if min(one.min(), other.min()) < 0 or max(one.max(), other.max()) > 1:
        return bounds
    assert bounds.low is not None
    assert bounds.high is not None
    return Bounds(max(bounds.low, -1.0), min(bounds.high, 1.0))


def _interval(
    metric: str, one: Floats, other: Floats, strata: Ints, how: Resampling
) -> tuple[Bounds, str | None]:
    gain = other - one
    if len(gain) < FEWEST_PAIRS:
        return NOTHING, f"too few pairs for an interval: {len(gain)}, not {FEWEST_PAIRS}"
    parts = [gain[strata == place] for place in range(int(strata.max()) + 1)]
    drawn = percentiles(resampled(gain[:, None], strata, how)[:, :, 0].mean(axis=0), how.confidence)
    if metric == SUCCESS or (metric in SHARES and is_constant(parts)):
        low, high = newcombe(one, other, strata, confidence=how.confidence)
        assert drawn.low is not None
        assert drawn.high is not None
        return Bounds(min(low, drawn.low), max(high, drawn.high)), None
    if is_constant(parts):
        return NOTHING, "no interval: the pairs of a task all differ by the same"
    return drawn, None


def _of_equal_groups(
    metric: str, one: Floats, other: Floats, rooms: Ints, confidence: float
) -> tuple[Bounds, str | None]:
    """Return the interval where all groups differ by the same: of a share Newcombe's, a trial each group."""
    if metric not in SHARES:
        return NOTHING, "no interval: all groups differ by the same"
    places = np.unique(rooms, return_inverse=True)[1]
    first, second = (np.bincount(places, weights=side) / np.bincount(places) for side in (one, other))
    return Bounds(*newcombe(first, second, np.zeros(len(first), dtype=np.int64), confidence=confidence)), None


def newcombe(one: Floats, other: Floats, strata: Ints, *, confidence: float) -> tuple[float, float]:
    """Compute the interval of a difference of paired shares, valid also where hardly any pair differs.

    R. G. Newcombe, "Improved confidence intervals for the difference between binomial proportions based on
    paired data", Statistics in Medicine 17 (1998), 2635–2650, method 8: Wilson's bounds, squared and added
    with the pairs' correlation. Over strata the squares are added again with the squared weights, as in
    G. Y. Zou & A. Donner, "Construction of confidence limits about effect measures", Statistics in Medicine
    27 (2008).

    Args:
        one: Shares of the baseline, one per world.
        other: Shares of the candidate, one per world.
        strata: Stratum of each world, from 0 without gaps; all strata weigh the same.
        confidence: Confidence of the interval.
    """
    below, above, differences = [], [], []
    n_strata = int(strata.max()) + 1
    for place in range(n_strata):
        first, second = one[strata == place], other[strata == place]
        mean_1, mean_2 = float(first.mean()), float(second.mean())
        low_1, high_1 = wilson_bounds(mean_1, len(first), confidence=confidence)
        low_2, high_2 = wilson_bounds(mean_2, len(second), confidence=confidence)
        together = _correlation(first, second)
        down_2, up_1 = mean_2 - low_2, high_1 - mean_1
        up_2, down_1 = high_2 - mean_2, mean_1 - low_1
        below.append(down_2**2 - 2 * together * down_2 * up_1 + up_1**2)
        above.append(up_2**2 - 2 * together * up_2 * down_1 + down_1**2)
        differences.append(mean_2 - mean_1)
    middle = math.fsum(differences) / n_strata
    return (
        middle - math.sqrt(math.fsum(below)) / n_strata,
        middle + math.sqrt(math.fsum(above)) / n_strata,
    )


def _correlation(one: Floats, other: Floats) -> float:
    """Return Pearson's correlation; 0 where one of the two does not vary."""
    a, b = one - one.mean(), other - other.mean()
    size = math.sqrt(float((a * a).sum()) * float((b * b).sum()))
    return max(-1.0, min(1.0, float((a * b).sum()) / size)) if size else 0.0


def mcnemar(n_baseline_only: int, n_candidate_only: int) -> float:
    """Compute the exact two-sided p-value of the hypothesis that both win alone equally often.

    Q. McNemar, "Note on the sampling error of the difference between correlated proportions", Psychometrika
    12 (1947), by the binomial distribution with 1/2.

    Args:
        n_baseline_only: Pairs in which the baseline alone succeeded.
        n_candidate_only: Pairs in which the candidate alone succeeded.
    """
    n, fewer = n_baseline_only + n_candidate_only, min(n_baseline_only, n_candidate_only)
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(fewer + 1)) / (1 << n))


def _tested(one: Floats, other: Floats, alpha: float) -> tuple[dict[str, Any], str | None]:
    """Compute McNemar's test of paired successes, or return the reason why it cannot be computed."""
    if not np.isin(one, (0, 1)).all() or not np.isin(other, (0, 1)).all():
        return {}, "no test: worlds were played repeatedly, with different outcomes"
    lost, won = int(((one == 1) & (other == 0)).sum()), int(((one == 0) & (other == 1)).sum())
    found = {"n_baseline_only": lost, "n_candidate_only": won}
    # the smallest possible p-value, when all pairs that differ fall on one side, is 2 / 2ⁿ
    needed = math.ceil(1 - math.log2(alpha))
    if lost + won < needed:
        few = f"{lost + won} of {len(one)} pairs differ"
        return found, f"too few pairs for a test: {few}, and fewer than {needed} prove nothing"
    return {**found, "p_value": mcnemar(lost, won)}, None
