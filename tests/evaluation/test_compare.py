from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

scipy_stats = pytest.importorskip("scipy.stats")

from trajkit.evaluation.estimates.compare import Comparison, Pairs, compare, mcnemar, newcombe  # noqa: E402
from trajkit.evaluation.estimates.estimate import Estimate, estimates  # noqa: E402
from trajkit.evaluation.estimates.resample import Floats, Resampling, percentiles, resampled  # noqa: E402

HOW = Resampling(resamples=2000)


def array(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def of(metric: str, values: Floats, places: list[int], tasks: list[str] | None = None) -> list[Estimate]:
    names = tasks or [f"task-{number}" for number in range(max(places) + 1)]
    return list(estimates({metric: values}, names, np.array(places), HOW))


def differences(one: Floats, other: Floats, places: list[int], metric: str = "success") -> list[Comparison]:
    pairs = Pairs({metric: one}, {metric: other}, np.array(places))
    names = [f"task-{number}" for number in range(max(places) + 1)]
    return list(compare(("base", "tuned"), pairs, names, HOW, [metric]))


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_scipys_binomial_test(lost: int, won: int) -> None:
    expected = scipy_stats.binomtest(lost, lost + won).pvalue if lost + won else 1.0
    assert mcnemar(lost, won) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("n_yes", "n"), [(0, 20), (20, 20), (7, 20), (51, 64)])
def test_success_of_one_task_has_scipys_wilson_interval(n_yes: int, n: int) -> None:
    values = array(*[1.0] * n_yes, *[0.0] * (n - n_yes))
    (found,) = of("success", values, [0] * n)
    expected = scipy_stats.binomtest(n_yes, n).proportion_ci(method="wilson")
    assert (found.value, found.n) == (n_yes / n, n)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_tasks_of_the_same_size_have_the_wilson_interval_of_all_together():
    values = array(*[1.0] * 5, *[0.0] * 15, *[1.0] * 19, 0.0)
    found = of("success", values, [0] * 20 + [1] * 20)[0]
    expected = scipy_stats.binomtest(24, 40).proportion_ci(method="wilson")
    assert found.task is None
    assert (found.value, found.low, found.high) == pytest.approx((0.6, expected.low, expected.high), abs=1e-9)


def test_tasks_weigh_the_same_however_many_worlds_they_have():
    found, small, large = of("episode_return", array(1, 3, *[10.0, 12.0] * 50), [0] * 2 + [1] * 100)
    assert (found.value, small.value, large.value) == (6.5, 2, 11)
    # s² / n is 2 / 2 of the small one, and 100 / 99 / 100 of the large one
    assert found.standard_error == pytest.approx(math.sqrt(1 + 1 / 99) / 2)
    assert (small.standard_error, found.n) == (pytest.approx(1.0), 102)


def test_the_bootstrap_of_a_mean_is_near_scipys():
    values = np.random.default_rng(3).exponential(2.0, size=60)
    (found,) = of("n_steps", values, [0] * 60)
    theirs = scipy_stats.bootstrap(
        (values,), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=0.06)


def test_the_same_seed_gives_the_same_bounds_and_another_others():
    values = np.random.default_rng(3).normal(size=(40, 1))
    tasks = np.repeat([0, 1], 20)
    first, again, other = (
        percentiles(resampled(values, tasks, how)[:, :, 0].mean(axis=0), 0.95)
        for how in (HOW, HOW, HOW._replace(seed=1))
    )
    assert first == again != other


def test_a_resample_stays_within_its_task():
    values = np.array([[1.0], [1.0], [5.0], [5.0]])
    drawn = resampled(values, np.array([0, 0, 1, 1]), HOW)
    assert (drawn[0] == 1).all()
    assert (drawn[1] == 5).all()


def test_what_was_not_measured_counts_in_no_mean():
    values = np.array([[1.0], [np.nan], [3.0]])
    drawn = resampled(values, np.zeros(3, dtype=np.int64), HOW)[0, :, 0]
    assert set(np.unique(drawn[~np.isnan(drawn)]).round(6)) <= {1, 3, 2, round(5 / 3, 6), round(7 / 3, 6)}
    assert np.isnan(drawn).mean() == pytest.approx(1 / 27, abs=0.015)
    (found,) = of("n_output_tokens", array(1, np.nan, 3), [0, 0, 0])
    assert (found.value, found.n) == (2, 2)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_none_and_all_have_intervals_that_are_not_points(share: float) -> None:
    (found,) = of("success", np.full(20, share), [0] * 20)
    # Newcombe 1998: 0 of 20 has 0 to 0.1611
    assert found.high - found.low == pytest.approx(0.1611, abs=5e-5)


def test_equal_values_that_are_no_share_have_no_interval():
    (found,) = of("n_steps", np.full(20, 64.0), [0] * 20)
    assert (found.value, found.standard_error, found.low, found.high) == (64, 0, None, None)


def test_one_world_a_task_is_measured_over_all_of_them_together():
    found = of("episode_return", array(*range(12)), list(range(12)))
    assert (found[0].value, found[0].n) == (5.5, 12)
    assert found[0].standard_error == pytest.approx(math.sqrt(13 / 12))  # s² of 0 to 11 is 13
    assert (found[1].n, found[1].low) == (1, None)


def test_a_group_that_lacks_a_task_is_measured_on_the_others():
    found = of("episode_return", array(*range(12)), [1] * 6 + [2] * 6, ["a", "b", "c"])
    assert [(each.task, each.value, each.n) for each in found] == [
        (None, 5.5, 12),
        ("b", 2.5, 6),
        ("c", 8.5, 6),
    ]
    # within tasks of 0 to 5 and 6 to 11: s² is 3.5 in both
    assert found[0].standard_error == pytest.approx(math.sqrt(2 * 3.5 / 6) / 2)


def test_a_share_of_answers_has_an_interval_even_where_none_is_invalid():
    (never,) = of("invalid", np.zeros(20), [0] * 20)
    assert (never.low, never.high) == pytest.approx((0, 0.1611), abs=5e-5)
    (seldom,) = of("invalid", array(*[0.0] * 10, *[0.1] * 10), [0] * 20)
    assert seldom.high < 0.08


def test_a_difference_is_taken_pair_by_pair():
    one = array(0, 1, 2, 3, 4, 5, 6, 7, 8, 9) * 10
    (found,) = differences(one, one + array(*[1, 3] * 5), [0] * 10, "episode_return")
    # the pairs differ by 1 or 3 although the values themselves are far apart
    assert (found.difference, found.n_pairs) == (2, 10)
    assert found.standard_error == pytest.approx(math.sqrt((10 / 9) / 10))
    assert 1 < found.low < 2 < found.high < 3


def test_a_difference_over_tasks_weighs_them_the_same():
    one = np.zeros(30)
    other = array(*[0.5, 1.5] * 5, *[3.0, 5.0] * 10)
    whole, *by_task = differences(one, other, [0] * 10 + [1] * 20, "episode_return")
    assert [each.difference for each in (whole, *by_task)] == [2.5, 1.0, 4.0]
    assert [each.n_pairs for each in (whole, *by_task)] == [30, 10, 20]


def test_nine_pairs_are_too_few_for_an_interval_and_say_so():
    (found,) = differences(array(*[0.0] * 9), array(*[1.0] * 9), [0] * 9)
    assert (found.difference, found.low, found.high) == (1, None, None)
    assert found.note == "too few pairs for an interval: 9, not 10"


def test_few_pairs_that_differ_have_no_p_value_and_say_so():
    one, other = np.zeros(40), np.zeros(40)
    other[:5] = 1
    (found,) = differences(one, other, [0] * 40)
    assert (found.p_value, found.n_baseline_only, found.n_candidate_only) == (None, 0, 5)
    assert found.note == "too few pairs for a test: 5 of 40 pairs differ, and fewer than 6 prove nothing"
    other[5] = 1
    (found,) = differences(one, other, [0] * 40)
    assert (found.p_value, found.note) == (pytest.approx(2 / 2**6), None)


def test_worlds_tried_repeatedly_have_no_exact_test():
    one = array(*[0.0] * 20)
    (found,) = differences(one, one + 0.5, [0] * 20)
    assert (found.p_value, found.n_candidate_only) == (None, None)
    assert "played repeatedly" in (found.note or "")


def test_newcombes_interval_is_that_of_his_formula():
    # a, b, c, d = 20, 12, 2, 16 of n = 50: 32/50 against 22/50; Wilson's bounds of both, φ by the definition
    first = array(*[1.0] * 32, *[0.0] * 18)
    second = array(*[1.0] * 20, *[0.0] * 12, *[1.0] * 2, *[0.0] * 16)
    found = newcombe(second, first, np.zeros(50, dtype=np.int64), confidence=0.95)
    ci = {n: scipy_stats.binomtest(n, 50).proportion_ci(method="wilson") for n in (32, 22)}
    phi = (20 * 16 - 12 * 2) / math.sqrt(32 * 18 * 22 * 28)
    down, up = 0.64 - ci[32].low, ci[22].high - 0.44
    low = 0.2 - math.sqrt(down**2 - 2 * phi * down * up + up**2)
    down, up = ci[32].high - 0.64, 0.44 - ci[22].low
    high = 0.2 + math.sqrt(down**2 - 2 * phi * down * up + up**2)
    assert found == pytest.approx((low, high), abs=1e-9)
    # Newcombe 1998 has 0.0562 and 0.3290 with a correction of φ, which makes it a little wider
    assert found == pytest.approx((0.0562, 0.3290), abs=0.02)


def test_no_success_on_both_sides_leaves_room_for_chance():
    (found,) = differences(np.zeros(40), np.zeros(40), [0] * 40)
    assert found.difference == 0
    # both shares may be anything up to Wilson's 0.0876; then squared and added
    assert (found.low, found.high) == pytest.approx((-0.0876, 0.0876), abs=5e-4)


def test_a_task_that_only_one_side_has_measured_is_not_compared():
    whole, *by_task = differences(
        array(*[1.0] * 10, *[np.nan] * 10), array(*[0.0] * 10, *[1.0] * 10), [0] * 10 + [1] * 10
    )
    assert (whole.difference, whole.n_pairs) == (-1, 10)
    assert [each.task for each in by_task] == ["task-0"]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 2)), min_size=10, max_size=40),
)
def test_an_interval_of_success_holds_the_difference_and_turns_with_the_sides(
    rows: list[tuple[int, int, int]],
) -> None:
    one, other = array(*[row[0] for row in rows]), array(*[row[1] for row in rows])
    places = [row[2] for row in rows]
    found, turned = differences(one, other, places)[0], differences(other, one, places)[0]
    assert -1 <= found.low <= found.difference <= found.high <= 1 + 1e-12
    assert turned.difference == pytest.approx(-found.difference)
    assert turned.p_value == found.p_value
    # Newcombe's is its own mirror; the bootstrap's percentiles are, up to a step of one resample
    assert turned.low == pytest.approx(-found.high, abs=0.06)


def test_the_interval_of_success_holds_the_truth_about_as_often_as_it_says():
    chance = np.random.default_rng(11)
    n_held, how = 0, Resampling(resamples=200)
    for _ in range(200):
        # two tasks of 20 worlds; the candidate wins 0.15 more of them
        hard = chance.random(40)
        one, other = (hard < 0.1).astype(float), (hard < 0.25).astype(float)
        pairs = Pairs({"success": one}, {"success": other}, np.repeat([0, 1], 20))
        found = next(compare(("a", "b"), pairs, ["x", "y"], how, ["success"]))
        n_held += found.low <= 0.15 <= found.high
    # 190 are expected; a fair one falls below 180 once in 600 times
    assert n_held >= 180
