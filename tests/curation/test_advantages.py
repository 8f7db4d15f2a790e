"""Advantages: each formula by hand, groups that say nothing, and that no order of episodes matters."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajkit.curation.advantages import Advantages, Attempts, Scheme, advantages
from trajkit.errors import DataError

NAN = math.nan


def attempts(*episodes: list[float], score: list[float] | None = None, **columns: Any) -> Attempts:
    """Episodes by the rewards of their steps; all of one group, and their scores the sums, unless given."""
    of_steps = {"state": np.int64, "value": np.float64, "acting": np.bool_}
    made = {
        name: np.array(
            column, dtype=of_steps.get(name, {"group": np.int64, "terminated": np.bool_}.get(name))
        )
        for name, column in ({"group": [0] * len(episodes)} | columns).items()
    }
    return Attempts(
        episode=np.repeat(np.arange(len(episodes)), [len(rewards) for rewards in episodes]),
        reward=np.array([reward for rewards in episodes for reward in rewards], dtype=np.float64),
        score=np.array(score or [sum(rewards) for rewards in episodes], dtype=np.float64),
        **made,
    )


def values(scheme: str, played: Attempts, **options: Any) -> list[float]:
    return [round(value, 12) for value in advantages(scheme, played, **options).values.tolist()]


THREE = attempts([0.0, 1.0], [0.0], [0.5])
"""Scores 1, 0 and 0.5: their mean is 0.5, their sample deviation sqrt((0.25 + 0.25 + 0) / 2) = 0.5."""


@pytest.mark.parametrize(
    ("scheme", "options", "expected"),
    [
        ("uniform", {}, [1, 1, 1, 1]),
        ("return", {}, [1, 1, 0, 0.5]),
        ("return-to-go", {"gamma": 0.5}, [0.5, 1, 0, 0.5]),
        ("advantage", {}, [0.5, 0.5, -0.5, 0]),
        # 1 - (0 + 0.5) / 2, 0 - (1 + 0.5) / 2, 0.5 - (1 + 0) / 2
        ("rloo", {}, [0.75, 0.75, -0.75, 0]),
        ("grpo", {}, [1, 1, -1, 0]),
        ("grpo", {"by_deviation": False}, [0.5, 0.5, -0.5, 0]),
        ("exponential", {"temperature": 0.5, "clip": 2.0}, [2, 2, round(math.exp(-1), 12), 1]),
    ],
)
def test_the_formulas_by_hand(scheme: str, options: dict[str, Any], expected: list[float]) -> None:
    assert values(scheme, THREE, **options) == expected


def test_a_group_that_says_nothing_is_left_out_and_counted() -> None:
    played = attempts([1.0], [1.0], [3.0], [0.0], [2.0], group=[0, 0, 1, 2, 2])
    for scheme in ("advantage", "rloo", "grpo"):
        made = advantages(scheme, played)
        assert made.left_out.tolist() == [True, True, True, False, False]
        assert made.values[:3].tolist() == [0, 0, 0]
        assert (made.n_groups, made.n_single, made.n_equal) == (3, 1, 1)
    made = advantages("exponential", played)
    assert not made.left_out.any()
    assert made.values[:3].tolist() == [1, 1, 1]
    assert (made.n_groups, made.n_single, made.n_equal) == (3, 1, 1)


def test_equal_scores_are_equal_whatever_their_sum_rounds_to() -> None:
    made = advantages("grpo", attempts([0.1], [0.1], [0.1]))
    assert (made.values.tolist(), made.n_equal) == ([0, 0, 0], 1)
    assert 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1
    made = advantages("grpo", attempts([0.1, 0.2, 0.3], [0.3, 0.2, 0.1]))
    assert (made.values.tolist(), made.n_equal) == ([0] * 6, 1)


# two attempts: through the states 7 8 9 with the return 1 at last, and 7 8 with the return 0
STATES = attempts([0.0, 0.0, 1.0], [0.0, 0.0], state=[7, 8, 9, 7, 8])


def test_gigpo_adds_the_advantage_within_a_state() -> None:
    # the scores 1 and 0 are 0.5 from their mean; so are the returns of the states 7 and 8, which both met
    made = advantages("gigpo", STATES, by_deviation=False)
    assert made.values.tolist() == [1, 1, 0.5, -1, -1]
    assert (made.n_matched, made.n_groups) == (4, 1)
    # discounted by half: from state 7 the returns are 0.25 and 0, from state 8 they are 0.5 and 0
    assert values("gigpo", STATES, by_deviation=False, gamma=0.5) == [0.625, 0.75, 0.5, -0.625, -0.75]
    assert values("gigpo", STATES, by_deviation=False, omega=0) == [0.5, 0.5, 0.5, -0.5, -0.5]
    one = 0.5 / math.sqrt(0.5)  # the sample deviation of 1 and 0 is sqrt(0.5)
    assert values("gigpo", STATES) == pytest.approx([2 * one, 2 * one, one, -2 * one, -2 * one])


def test_gigpo_compares_a_state_that_one_attempt_meets_twice_and_none_of_another_start() -> None:
    played = attempts([0.0, 1.0], [1.0], state=[5, 5, 5], group=[0, 1])
    made = advantages("gigpo", played, gamma=0.5, by_deviation=False)
    assert made.values.tolist() == [-0.25, 0.25, 0]  # the returns 0.5 and 1, and an attempt without another
    assert made.left_out.tolist() == [False, False, True]
    assert (made.n_single, made.n_matched) == (2, 2)


def test_history_compares_states_that_were_reached_alike_and_more_so() -> None:
    # 1 → 3, 1 → 3 and 2 → 3, with the returns 4, 2 and 0 from state 3 on
    played = attempts([0.0, 4.0], [0.0, 2.0], [0.0, 0.0], state=[1, 3, 1, 3, 2, 3])
    by_score = [2, 2, 0, 0, -2, -2]
    alone: dict[str, Any] = {"by_deviation": False, "omega": 1.0}
    # k = 0: state 1 has the returns 4 and 2, state 3 has 4, 2 and 0
    assert values("gigpo", played, **alone) == [2 + 1, 2 + 2, 0 - 1, 0 + 0, -2, -2 - 2]
    # k = 1: state 3 after state 1 has 4 and 2; weights 1 and 2
    expected = [2 + 1, 2 + (2 + 2 * 1) / 3, 0 - 1, 0 + (0 + 2 * -1) / 3, -2, -2 - 2]
    assert values("gigpo", played, history=1, **alone) == [round(value, 12) for value in expected]
    # no step has two steps before it
    assert values("gigpo", played, history=9, **alone) == [round(value, 12) for value in expected]
    assert values("gigpo", played, history=1, by_deviation=False, omega=0) == by_score


def test_generalized_advantages_follow_the_critic_step_by_step() -> None:
    played = attempts([0.0, 1.0], value=[0.5, 0.25])
    # d_1 = 1 - 0.25 = 0.75, d_0 = 0 + 0.5 * 0.25 - 0.5 = -0.375, and -0.375 + 0.5 * 0.5 * 0.75 = -0.1875
    assert values("gae", played, gamma=0.5, lam=0.5) == [-0.1875, 0.75]
    # with lambda 1 it is the return less the value, with lambda 0 the error of one step
    assert values("gae", played, gamma=0.5, lam=1) == [0.5 - 0.5, 0.75]
    assert values("gae", played, gamma=0.5, lam=0) == [-0.375, 0.75]


def test_an_episode_that_was_cut_off_goes_on_from_what_the_critic_expects() -> None:
    ends: dict[str, Any] = {"terminated": [True, False], "last_value": [8.0, 8.0], "value": [0.5, 0.5]}
    assert values("gae", attempts([1.0], [1.0], **ends), gamma=0.5) == [0.5, 4.5]
    del ends["last_value"]
    assert values("gae", attempts([1.0], [1.0], **ends), gamma=0.5) == [0.5, 0.5]


def test_a_call_that_does_not_act_has_the_value_of_the_next_action() -> None:
    acting = attempts([1.0, 4.0], value=[0.5, 2.0])
    called = attempts(
        [NAN, 1.0, NAN, 4.0, NAN], score=[5], value=[NAN, 0.5, 7, 2, NAN], acting=[0, 1, 0, 1, 0]
    )
    for scheme, options in (("return-to-go", {"gamma": 0.5}), ("gae", {"gamma": 0.5, "lam": 0.5})):
        first, second = values(scheme, acting, **options)
        assert values(scheme, called, **options) == [first, first, second, second, 0]


@pytest.mark.parametrize(
    ("scheme", "played", "told"),
    [
        ("gigpo", attempts([1.0]), "the scheme gigpo needs the state of each step"),
        ("gae", attempts([1.0]), "the scheme gae needs the value of each step"),
        ("return-to-go", attempts([1.0], [0.0, NAN]), "episode 1 step 1 has no reward"),
        ("gae", attempts([1.0, 1.0], value=[0, NAN]), "episode 0 step 1 has no value"),
        ("rloo", attempts([1.0], [NAN]), "episode 1 has no score"),
    ],
)
def test_what_a_scheme_needs_is_told(scheme: str, played: Attempts, told: str) -> None:
    with pytest.raises(DataError, match=told):
        advantages(scheme, played)


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match="state has 1 values for 2 steps"):
        attempts([1.0, 2.0], state=[1])
    with pytest.raises(DataError, match="group has 2 values for 1 episodes"):
        attempts([1.0], group=[1, 2])
    with pytest.raises(DataError, match="steps are not ordered by their episode, a number from 0 to 1"):
        Attempts(episode=np.array([1, 0]), score=np.zeros(2), group=np.zeros(2, dtype=np.int64))


def test_no_episodes_and_episodes_without_steps_are_nothing_special() -> None:
    empty = attempts(state=[], value=[])
    for scheme in Scheme:
        assert advantages(scheme, empty).values.tolist() == []
    played = attempts([], [1.0], [], state=[1], value=[0.5])
    assert values("return-to-go", played) == [1.0]
    assert values("gae", played) == [0.5]
    assert values("advantage", played) == [round(2 / 3, 12)]


_NUMBER = st.sampled_from([0.0, -0.0, 0.1, 1.0, 1e16, -1e16]) | st.floats(-1e6, 1e6)
_STEP = st.tuples(_NUMBER, st.integers(0, 2), _NUMBER)
_EPISODE = st.tuples(st.lists(_STEP, max_size=4), st.integers(0, 1), _NUMBER, st.booleans())


def _of(episodes: list[Any]) -> Attempts:
    return attempts(
        *[[step[0] for step in steps] for steps, *_ in episodes],
        score=[score for _, _, score, _ in episodes],
        group=[group for _, group, *_ in episodes],
        state=[step[1] for steps, *_ in episodes for step in steps],
        value=[step[2] for steps, *_ in episodes for step in steps],
        terminated=[terminated for *_, terminated in episodes],
        last_value=[score for _, _, score, _ in episodes],
    )


@settings(max_examples=15, deadline=None)
@given(
    episodes=st.lists(_EPISODE, min_size=1, max_size=6), scheme=st.sampled_from(list(Scheme)), data=st.data()
)
def test_no_last_bit_depends_on_the_order_of_episodes(
    episodes: list[Any], scheme: Scheme, data: st.DataObject
) -> None:
    def made(order: list[int]) -> tuple[dict[int, bytes], list[int]]:
        found: Advantages = advantages(
            scheme, _of([episodes[place] for place in order]), gamma=0.9, history=1
        )
        assert np.isfinite(found.values).all()
        assert not np.signbit(found.values[found.values == 0]).any()
        parts = np.split(found.values, np.cumsum([len(episodes[place][0]) for place in order])[:-1])
        by_episode = {place: part.tobytes() for place, part in zip(order, parts, strict=True)}
        return by_episode, [found.n_groups, found.n_single, found.n_equal, found.n_matched]

    order = list(range(len(episodes)))
    assert made(order) == made(data.draw(st.permutations(order)))


@settings(max_examples=15, deadline=None)
@given(episodes=st.lists(_EPISODE, min_size=1, max_size=6))
def test_generalized_advantages_are_the_sum_of_the_discounted_errors(episodes: list[Any]) -> None:
    expected: list[float] = []
    for steps, _, last, terminated in episodes:
        reached = [step[2] for step in steps] + [0.0 if terminated else last]
        errors = [step[0] + 0.9 * reached[place + 1] - step[2] for place, step in enumerate(steps)]
        expected += [
            sum((0.9 * 0.8) ** later * error for later, error in enumerate(errors[place:]))
            for place in range(len(errors))
        ]
    found = advantages("gae", _of(episodes), gamma=0.9, lam=0.8).values
    assert found.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_every_scheme_says_its_formula_and_where_it_is_from() -> None:
    import inspect

    parts = inspect.getsource(Scheme).split('"""')[3 : 2 * len(Scheme) + 3 : 2]
    assert len(parts) == len(Scheme)
    for part in parts:
        assert part.startswith(("w = ", "w_t = ", "w_i = "))
        assert re.search(r"\b(19|20)\d\d\b|arXiv:\d{4}", part)
