from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajkit.curation.statistics.intervals import (
    Values,
    bootstrap,
    effective_size,
    entropy_bits,
    t_interval,
    t_quantile,
    wilson,
)
from trajkit.errors import RequestError


def values(*given: float) -> Values:
    return Values(*np.unique(np.array(given, dtype=np.float64), return_counts=True))


@pytest.mark.parametrize(
    ("n_yes", "n", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_is_what_newcombe_prints(n_yes: int, n: int, low: float, high: float) -> None:
    found = wilson(n_yes, n)
    assert (found.value, found.n) == (n_yes / n, n)
    assert (round(found.low or 0, 4), round(found.high or 0, 4)) == (low, high)


def test_wilson_of_all_and_of_none_ends_at_the_ends() -> None:
    all_of_them, none_of_them = wilson(20, 20), wilson(0, 20)
    assert all_of_them.high == 1.0
    assert none_of_them.low == 0.0
    assert all_of_them.low == pytest.approx(1 - (none_of_them.high or 0))
    assert wilson(0, 0) is None


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),
    # printed tables of Student's t
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.3027),
        (0.975, 9, 2.2622),
        (0.975, 30, 2.0423),
        (0.995, 5, 4.0321),
        (0.95, 120, 1.6577),
        (0.975, 1_000_000, 1.9600),
    ],
)
def test_quantiles_of_t_are_those_of_the_tables(probability: float, degrees: int, expected: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(expected, abs=5e-5)


def test_a_mean_has_the_interval_of_the_textbook() -> None:
    found = t_interval(values(1, 2, 3, 4, 5))
    half = 2.776445 * math.sqrt(2.5 / 5)  # t(0.975, 4) and s² = 10 / 4
    assert found == pytest.approx((3, 3 - half, 3 + half, 5), abs=1e-5)


def test_of_one_value_there_are_no_bounds_and_of_none_nothing() -> None:
    assert t_interval(values(7)) == (7, None, None, 1)
    assert bootstrap(values(7), resamples=10, seed=0) == (7, None, None, 1)
    assert t_interval(values()) is None
    assert bootstrap(values(), resamples=10, seed=0) is None


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert t_interval(values(0.1, 0.1, 0.1)) == pytest.approx((0.1, 0.1, 0.1, 3))


def test_the_bootstrap_follows_its_seed_and_is_near_t_for_many_values() -> None:
    many = values(*np.random.default_rng(5).normal(10, 2, size=400))
    one = bootstrap(many, resamples=2000, seed=1)
    again = bootstrap(many, resamples=2000, seed=1)
    other = bootstrap(many, resamples=2000, seed=2)
    expected = t_interval(many)
    assert one == again != other
    assert one[:3] == pytest.approx(expected[:3], abs=0.05)


def test_the_bootstrap_of_few_values_is_not_that_of_a_normal_mean() -> None:
    found = bootstrap(values(0, 0, 0, 0, 10), resamples=4000, seed=0)
    # a resample has k tens with probability of the binomial: mean 2k; P(k >= 4) < 0.7 %, P(k >= 3) = 5.8 %
    assert (found.value, found.low, found.high) == (2, 0, 6)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_a_confidence_is_a_share(confidence: float) -> None:
    with pytest.raises(RequestError, match="is not between 0 and 1"):
        wilson(1, 2, confidence=confidence)


def test_effective_size_is_the_number_of_equal_weights() -> None:
    assert effective_size(values(*[0.3] * 12)) == pytest.approx(12)
    assert effective_size(values(3, 1)) == pytest.approx(16 / 10)
    assert effective_size(values(3, 1, 0, 0, -5)) == pytest.approx(16 / 10)
    assert effective_size(values(3e-300, 1e-300)) == pytest.approx(16 / 10)
    assert effective_size(values(0, 0)) is None


def test_entropy_is_in_bits() -> None:
    assert entropy_bits(values(5, 5, 5, 5)) == pytest.approx(2)
    assert entropy_bits(values(7)) == 0
    assert entropy_bits(values()) == 0
    assert entropy_bits(values(3, 1, 0)) == pytest.approx(0.811278, abs=1e-6)


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share_inside_the_unit(trial: tuple[int, int]) -> None:
    found = wilson(*trial)
    assert 0 <= found.low <= found.value <= found.high <= 1


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40), st.randoms())
def test_effective_size_is_at_most_the_number_and_no_matter_of_order(
    weights: list[float], chance: random.Random
) -> None:
    found = effective_size(values(*weights))
    shuffled = chance.sample(weights, len(weights))
    assert 1 - 1e-9 <= found <= len(weights) * (1 + 1e-9)
    assert effective_size(values(*shuffled)) == found
    assert effective_size(values(*[2 * weight for weight in weights])) == pytest.approx(found)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40))
def test_bounds_lie_on_both_sides_of_the_mean(given_values: list[float]) -> None:
    for found in (
        t_interval(values(*given_values)),
        bootstrap(values(*given_values), resamples=50, seed=1, confidence=0.999),
    ):
        room = 1e-9 * max(map(abs, given_values))
        assert found.low - room <= found.value
        assert found.high + room >= found.low
