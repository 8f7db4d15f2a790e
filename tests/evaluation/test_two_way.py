"""Intervals over worlds and training seeds, held against simulations whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.conftest import make_played
from trajkit.curation.statistics.intervals import Values, share_bounds, t_interval
from trajkit.evaluation.estimates.compare import Pairs, compare
from trajkit.evaluation.estimates.estimate import Estimate, estimates
from trajkit.evaluation.estimates.resample import Floats, Resampling
from trajkit.evaluation.estimates.two_way import n_crossed, spread
from trajkit.evaluation.report import report
from trajkit.evaluation.reports.text import said_of
from trajkit.schema import Episode

HOW = Resampling(resamples=100)
N_MODELS, N_WORLDS, N_RUNS = 3, 40, 400
TASKS = np.repeat([0, 1], N_WORLDS)


class Truth(NamedTuple):
    """A method on a logit scale: its mean, the spread of worlds and of training seeds, and its gain."""

    mean: float
    worlds: float
    seeds: float
    gain: float = 0.0

    def share(self, chance: np.random.Generator, *, gained: bool = False) -> float:
        """The success that the method has over all worlds and training seeds."""
        world, seed = chance.normal(size=(2, 200_000))
        return float(
            _sigmoid(self.mean + self.gain * gained + self.worlds * world + self.seeds * seed).mean()
        )

    def played(self, worlds: Floats, chance: np.random.Generator, *, gained: bool = False) -> Floats:
        """Successes, worlds by models, of three new trainings."""
        seeds = chance.normal(size=(1, N_MODELS)) * self.seeds
        odds = self.mean + self.gain * gained + self.worlds * worlds[:, None] + seeds
        return (chance.random(odds.shape) < _sigmoid(odds)).astype(np.float64)


def _sigmoid(values: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-values)))


METHODS = [Truth(0, 0, 0.2), Truth(0, 1.5, 0.5), Truth(2, 1.5, 0.2), Truth(2, 0, 0.5), Truth(3, 1.5, 0.5)]


@pytest.mark.full
def test_intervals_of_a_method_cover_its_success_in_93_to_97_percent():
    chance, n_held = np.random.default_rng(11), 0
    for truth in METHODS:
        share = truth.share(chance)
        for _ in range(N_RUNS):
            played = truth.played(chance.normal(size=len(TASKS)), chance)
            found = next(
                estimates({"success": played.mean(axis=1)}, ["a", "b"], TASKS, HOW, {"success": played})
            )
            n_held += found.low <= share <= found.high
    assert 0.93 <= n_held / (N_RUNS * len(METHODS)) <= 0.97


@pytest.mark.full
def test_intervals_of_a_difference_between_methods_cover_it_in_93_to_97_percent():
    chance, n_held = np.random.default_rng(12), 0
    methods = [each._replace(gain=1.0) for each in METHODS]
    for truth in methods:
        difference = truth.share(chance, gained=True) - truth.share(chance)
        for _ in range(N_RUNS):
            worlds = chance.normal(size=len(TASKS))
            before, after = (truth.played(worlds, chance, gained=gained) for gained in (False, True))
            pairs = Pairs(
                {"success": before.mean(axis=1)},
                {"success": after.mean(axis=1)},
                TASKS,
                {"success": before},
                {"success": after},
            )
            found = next(compare(("before", "after"), pairs, ["a", "b"], HOW, ["success"]))
            n_held += found.low <= difference <= found.high
    assert 0.93 <= n_held / (N_RUNS * len(methods)) <= 0.97


def test_the_variance_is_that_of_a_two_way_table_by_hand():
    played = np.array([[0.0, 2.0], [4.0, 8.0], [2.0, 8.0]])
    # means of worlds 1, 6, 5 and of models 2, 6, of all 4: worlds s² = (9 + 4 + 1) / 2 = 7;
    # models s² = 8; residuals ±1, 0, ∓1: sum of squares 4, over (3 - 1)(2 - 1) = 2
    found = spread(played.mean(axis=1), np.zeros(3, dtype=np.int64), [played])
    between, within = 8 / 2, 2 / 3 / 2
    assert found.variance == pytest.approx(7 / 3 + between - within)
    degrees = found.variance**2 / ((7 / 3) ** 2 / 2 + between**2 / 1 + within**2 / 2)
    assert found.degrees == pytest.approx(degrees)


def test_models_that_agree_add_nothing_to_the_variance_between_worlds():
    played = np.repeat(np.array([[0.0], [1.0], [1.0], [0.0]]), 3, axis=1)
    found = spread(played.mean(axis=1), np.zeros(4, dtype=np.int64), [played])
    assert found.variance == pytest.approx((1 / 3) / 4)
    assert found.degrees == 3


def test_models_that_played_other_worlds_are_not_crossed():
    nothing = np.nan
    apart = np.array([[1.0, nothing], [0.0, nothing], [nothing, 1.0], [nothing, 0.0]])
    assert n_crossed(apart, np.zeros(4, dtype=np.int64)) == 1
    assert n_crossed(np.ones((4, 2)), np.array([0, 0, 1, 1])) == 2
    assert n_crossed(np.ones((3, 2)), np.array([0, 0, 1])) == 1  # one world of a task says nothing of models


@given(st.floats(0, 1), st.floats(0, 0.3), st.integers(2, 500))
def test_the_bounds_of_a_share_stay_between_0_and_1(mean: float, variance: float, n: int) -> None:
    low, high = share_bounds(mean, variance, n, n - 1)
    assert 0 <= low <= mean + 1e-9
    assert mean - 1e-9 <= high <= 1


def test_a_mean_of_returns_has_bounds_that_are_possible():
    values = np.array([0.2, 0.95, 0.97, 0.99])
    found = t_interval(Values(values, np.array([1, 1, 1, 3])))
    assert 0 <= found.low < found.value < found.high <= 1
    rare = t_interval(Values(np.array([0.0, 5.0]), np.array([9, 1])))
    assert rare.low == 0


def _of(found: list[Estimate]) -> dict[str, Estimate]:
    return {each.metric: each for each in found}


def test_a_report_says_whether_an_interval_is_of_the_model_or_of_the_method(
    evaluated: Callable[..., Path],
) -> None:
    def episodes(variant: str, models: list[str], *, wins: Callable[[int, int], bool]) -> list[Episode]:
        return [
            make_played(variant, seed, is_success=wins(number, seed), step={"model_name": model})
            for number, model in enumerate(models)
            for seed in range(20)
        ]

    base = episodes("base", ["base"], wins=lambda _, seed: seed % 2 == 0)
    tuned = episodes("tuned", ["a", "b", "c"], wins=lambda number, seed: (seed + number) % 4 != 0)
    found = report(evaluated([*base, *tuned]), resamples=100)
    groups: dict[str, Any] = {group.name: _of(list(group.estimates)) for group in found.groups}
    assert groups["base"]["success"].n_models == 1
    assert groups["tuned"]["success"].n_models == 3
    assert groups["tuned"]["success"].standard_error == pytest.approx(
        math.sqrt(_variance([[(seed + number) % 4 != 0 for number in range(3)] for seed in range(20)]))
    )
    difference = next(each for each in found.comparisons if each.metric == "success")
    assert (difference.candidate, difference.n_models) == ("tuned", 3)
    assert (
        "Those of tuned are for the method, over worlds and models; the others are for this model"
        in said_of(found)
    )
    alone = report(evaluated(base), resamples=100)
    assert "They are for this model on other worlds, not for another training run." in said_of(alone)
    assert any("60 episodes on 20 worlds by 3 models" in note for note in found.notes)


def _variance(rows: list[list[bool]]) -> float:
    """Of the mean of a table with random rows and columns, from its mean squares."""
    table = np.array(rows, dtype=np.float64)
    n, k = table.shape
    own, models, whole = table.mean(axis=1), table.mean(axis=0), table.mean()
    of_rows = k * ((own - whole) ** 2).sum() / (n - 1)
    of_columns = n * ((models - whole) ** 2).sum() / (k - 1)
    rest = ((table - own[:, None] - models + whole) ** 2).sum() / ((n - 1) * (k - 1))
    return float((of_rows + max(of_columns - rest, 0)) / (n * k))


def test_tasks_that_share_rooms_are_measured_over_rooms_by_hand():
    values = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0])
    found = spread(values, np.array([0, 0, 0, 1, 1, 1]), rooms=np.array([0, 1, 2, 0, 1, 2]))
    # means of the rooms 0, 1, 1/2: s² is 1/4, over 3 rooms
    assert (found.variance, found.degrees) == (pytest.approx(1 / 12), 2)


@pytest.mark.full
def test_intervals_over_rooms_cover_where_tasks_of_one_seed_go_alike():
    chance, n_apart, n_rooms_held, n_gain = np.random.default_rng(13), 0, 0, 0
    rooms = np.tile(np.arange(N_WORLDS), 2)
    methods = [Truth(0, 2.0, 0), Truth(1, 3.0, 0)]
    for truth in methods:
        share = truth.share(chance)
        gain = truth._replace(gain=1.0).share(chance, gained=True) - share
        for _ in range(N_RUNS):
            worlds = np.tile(chance.normal(size=N_WORLDS), 2)
            odds = truth.mean + truth.worlds * worlds
            one, other = ((chance.random(odds.shape) < _sigmoid(odds + d)) * 1.0 for d in (0.0, 1.0))
            apart = next(estimates({"success": one}, ["a", "b"], TASKS, HOW))
            found = next(estimates({"success": one}, ["a", "b"], TASKS, HOW, rooms=rooms))
            assert (found.n, found.n_rooms, apart.n_rooms) == (2 * N_WORLDS, N_WORLDS, None)
            pairs = Pairs({"success": one}, {"success": other}, TASKS, rooms=rooms)
            differs = next(compare(("before", "after"), pairs, ["a", "b"], HOW, ["success"]))
            n_apart += _holds(apart, share)
            n_rooms_held += _holds(found, share)
            n_gain += _holds(differs, gain)
    n = N_RUNS * len(methods)
    assert n_apart / n < 0.92  # as if the two tasks of a room were independent
    assert 0.93 <= n_rooms_held / n <= 0.97
    assert 0.93 <= n_gain / n <= 0.97


def test_a_report_counts_the_rooms_that_tasks_share(evaluated: Callable[..., Path]) -> None:
    episodes = [
        make_played(variant, seed, task=task, is_success=(seed + len(variant)) % 3 != 0)
        for variant in ("base", "tuned")
        for task in ("goto", "pickup")
        for seed in range(20)
    ]
    found = report(evaluated(episodes), resamples=100)
    success = {each.task: each for each in found.groups[0].estimates if each.metric == "success"}
    assert (success[None].n, success[None].n_rooms) == (40, 20)
    assert (success["world/goto"].n, success["world/goto"].n_rooms) == (20, None)
    # both tasks of a room end alike: forty worlds say no more than the twenty of one task
    assert success[None].standard_error == pytest.approx(success["world/goto"].standard_error)
    assert {each.n_rooms for each in found.comparisons if each.task is None} == {20}
    assert any("40 worlds are 20 rooms" in note for note in found.notes)


def _holds(found: Any, truth: float) -> bool:
    return bool(found.low <= truth <= found.high)


def test_prompts_of_one_group_are_one_sample(evaluated: Callable[..., Path]) -> None:
    def sides(n_groups: int, wins: Callable[[int], bool]) -> Path:
        return evaluated(
            make_played(
                name,
                seed,
                is_success=name == "tuned" and wins(seed),
                n_steps=1,
                env_id="prompts-1",
                task="prompt",
                tags={"trajkit.group": f"customer-{seed % n_groups}"},
            )
            for name in ("base", "tuned")
            for seed in range(60)
        )

    some = report(sides(12, lambda seed: seed % 12 < 6))
    (success,) = (one for one in some.comparisons if one.metric == "success")
    # twelve groups of 0 or 1: mean 1/2, s² = 12 · 1/4 / 11, and t(0.975, 11) = 2.201
    half = 2.200985 * math.sqrt(12 * 0.25 / 11 / 12)
    assert (success.n_pairs, success.n_rooms, success.p_value) == (60, 12, None)
    assert (success.low, success.high) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-4)
    assert "n_steps" not in some.measures
    assert "60 prompts are of 12 groups: intervals are over groups, without a test" in some.notes
    assert "the prompts of one group are not independent samples" in str(some)

    (success,) = (one for one in report(sides(12, lambda seed: True)).comparisons if one.metric == "success")
    assert 0.5 < success.low < 0.75, "twelve groups prove less than sixty prompts"
    (success,) = (one for one in report(sides(5, lambda seed: True)).comparisons if one.metric == "success")
    assert (success.low, success.note) == (None, "too few groups for an interval: 5, not 10")
