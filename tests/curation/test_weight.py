"""Weights: the formulas by hand, and that they are finite and follow from the data alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.matrix import portions
from trajkit.curation.masks.mask import mask
from trajkit.curation.weights.weight import weight
from trajkit.errors import DataError, NothingMatched, QueryError, RequestError
from trajkit.schema import Episode, FeedbackKind, Metric, MetricLevel, Transition, message
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import Store
from trajkit.store.writer import write_episodes

Attempts = Callable[..., Store]


def episode(
    name: str,
    score: float | None = None,
    *,
    rewards: Sequence[float | None] = (0.0, 1.0),
    step: dict[str, Any] | None = None,
    **fields: Any,
) -> Episode:
    default: dict[str, Any] = {"source": "test", "env_id": "world", "task": "goto", "seed": 1}
    steps = tuple(
        Transition(
            step_index=index,
            messages=(message("user", f"{name} {index}"),),
            completion=message("assistant", "go"),
            action_executed="go",
            reward=reward,
            **(step or {}),
        )
        for index, reward in enumerate(rewards)
    )
    metrics = {} if score is None else {"episode_return": score}
    return Episode(episode_id=name, steps=steps, **default | {"metrics": metrics} | fields)


def weights(goal: Path) -> dict[str, list[float]]:
    return {each.episode_id: [one.loss_weight for one in each.steps] for each in open_dataset(goal)}


def test_uniform_weights_are_1_whatever_they_were(attempts: Attempts, tmp_path: Path) -> None:
    store = attempts([episode("a", 0.5, step={"loss_weight": 7.0})])
    made = weight(store.path, tmp_path / "out", scheme="uniform")
    assert weights(tmp_path / "out") == {"a": [1.0, 1.0]}
    assert made.report.all.n_effective_steps == 2


def test_the_weight_of_a_return_is_the_return(attempts: Attempts, tmp_path: Path) -> None:
    store = attempts([episode("a", 0.75), episode("b", 0.0), episode("c", -0.5)])
    made = weight(store.path, tmp_path / "out", scheme="return")
    assert weights(tmp_path / "out") == {"a": [0.75] * 2, "b": [0.0] * 2, "c": [-0.5] * 2}
    zero = next(each for each in open_dataset(tmp_path / "out") if each.episode_id == "b")
    assert {one.mask_reason for one in zero.steps} == {"weight 0"}
    assert [(left.reason, left.n_steps) for left in made.entry.masked] == [("weight 0", 2)]
    assert (made.report.all.n_zero, made.report.all.n_negative) == (2, 2)
    assert any("2 steps have a weight below 0" in note for note in made.report.notes)


def test_returns_to_go_are_discounted_from_behind(attempts: Attempts, tmp_path: Path) -> None:
    store = attempts([episode("a", rewards=(1.0, 0.0, 4.0))])
    weight(store.path, tmp_path / "half", scheme="return-to-go", gamma=0.5)
    assert weights(tmp_path / "half") == {"a": [2.0, 2.0, 4.0]}  # 1 + 0.5 * (0 + 0.5 * 4)
    weight(store.path, tmp_path / "none", scheme="return-to-go", gamma=0)
    assert weights(tmp_path / "none") == {"a": [1.0, 0.0, 4.0]}


def test_a_call_before_the_action_has_the_return_of_the_action(attempts: Attempts, tmp_path: Path) -> None:
    acted = episode("a", rewards=(1.0, None, 2.0, None))
    call = {"action_executed": None}
    steps = [one.model_copy(update=call if one.reward is None else {}) for one in acted.steps]
    store = attempts([acted.model_copy(update={"steps": tuple(steps)})])
    weight(store.path, tmp_path / "out", scheme="return-to-go", gamma=0.5)
    assert weights(tmp_path / "out") == {"a": [2.0, 2.0, 2.0, 0.0]}


@pytest.mark.parametrize(
    ("spoiled", "told"),
    [
        (episode("b", rewards=(0.0, None)), "episode b step 1: its reward is unknown"),
        (episode("b", outcome="error"), "episode b was not played to its end"),
    ],
)
def test_an_unknown_reward_is_no_0(attempts: Attempts, spoiled: Episode, told: str) -> None:
    with pytest.raises(DataError, match=told):
        weight(attempts([episode("a"), spoiled]).path, None, scheme="return-to-go", gamma=1)


def test_an_advantage_is_against_the_mean_of_the_group_or_of_the_task(
    attempts: Attempts, tmp_path: Path
) -> None:
    episodes = [
        episode("a", 1.0),
        episode("b", 0.0),
        episode("c", 0.5, seed=2),
        episode("d", 0.25, seed=2, rewards=(0.0,)),
        episode("e", 4.0, task="open"),
    ]
    store = attempts(episodes)
    made = weight(store.path, tmp_path / "group", scheme="advantage")
    expected = {"a": [0.5] * 2, "b": [-0.5] * 2, "c": [0.125] * 2, "d": [-0.125], "e": [0.0] * 2}
    assert weights(tmp_path / "group") == expected
    assert any("1 of 3 groups have one attempt" in note for note in made.report.notes)
    weight(store.path, tmp_path / "task", scheme="advantage", baseline="task")
    mean = (1.0 + 0.0 + 0.5 + 0.25) / 4  # of episodes, not of steps
    assert weights(tmp_path / "task")["a"] == [1.0 - mean] * 2
    assert weights(tmp_path / "task")["e"] == [0.0, 0.0]
    weight(store.path, tmp_path / "by", scheme="advantage", by=("seed",))
    assert weights(tmp_path / "by")["c"] == [0.125] * 2


def walk(name: str, rooms: str, rewards: Sequence[float], **fields: Any) -> Episode:
    """An episode that sees one room after the other."""
    made = episode(name, sum(rewards), rewards=rewards, **fields)
    steps = [
        one.model_copy(update={"observation": room}) for one, room in zip(made.steps, rooms, strict=True)
    ]
    return made.model_copy(update={"steps": tuple(steps)})


def test_attempts_at_one_start_are_compared_as_the_schemes_of_reinforcement_learning_do(
    attempts: Attempts, tmp_path: Path
) -> None:
    # hall and door are met by both attempts of seed 1; the attempt of seed 2 has nothing beside it
    played = [walk("a", "hdg", (0, 0, 1)), walk("b", "hd", (0, 0)), walk("c", "hd", (0, 1), seed=2)]
    store = attempts(played)

    def made(name: str, **options: Any) -> tuple[dict[str, list[float]], Any]:
        report = weight(store.path, tmp_path / name, **options).report
        return weights(tmp_path / name), report

    found, report = made("rloo", scheme="rloo")
    assert found == {"a": [1.0] * 3, "b": [-1.0] * 2, "c": [0.0] * 2}
    assert (report.n_groups, report.n_single, report.n_equal, report.all.n_zero) == (2, 1, 0, 2)
    assert any("1 of 2 groups have one attempt" in note for note in report.notes)
    found, _ = made("grpo", scheme="grpo")
    assert found["a"] == pytest.approx([0.5 / math.sqrt(0.5)] * 3)
    found, _ = made("without", scheme="grpo", no_deviation=True)
    assert found["b"] == [-0.5] * 2
    found, report = made("gigpo", scheme="gigpo", no_deviation=True, gamma=0.5)
    # from the hall the returns are 0.25 and 0, from the door 0.5 and 0
    assert found == {"a": [0.625, 0.75, 0.5], "b": [-0.625, -0.75], "c": [0.0, 0.0]}
    assert report.n_matched == 4
    assert any("4 of 7 steps share their state" in note for note in report.notes)


@pytest.mark.full
def test_an_attempt_that_is_not_learned_still_says_what_a_state_is_worth(
    attempts: Attempts, tmp_path: Path
) -> None:
    masked = {"loss_weight": 0.0, "mask_reason": "loop"}
    store = attempts([walk("a", "hd", (0, 1)), walk("b", "hd", (0, 0), step=masked)])
    weight(store.path, tmp_path / "out", scheme="gigpo", no_deviation=True)
    assert weights(tmp_path / "out") == {"a": [1.0, 1.0], "b": [0.0, 0.0]}


@pytest.mark.full
def test_a_critic_is_a_metric_of_steps(tmp_path: Path) -> None:
    critic = Metric(name="value", level=MetricLevel.INFERENCE, kind=FeedbackKind.FLOAT)
    valued = episode("a", rewards=(0.0, 1.0), step={"metrics": {"value": 0.5}, "truncated": True})
    write_episodes(tmp_path / "store", [valued], kind="test", metrics=[critic])
    made = weight(tmp_path / "store", tmp_path / "out", scheme="gae", critic="value", gamma=0.5, lam=0.5)
    # the errors are 0 + 0.5 * 0.5 - 0.5 and 1 - 0.5
    assert weights(tmp_path / "out") == {"a": [-0.25 + 0.25 * 0.5, 0.5]}
    assert made.entry.arguments["lam"] == 0.5
    assert any("1 of 1 episodes were cut off" in note for note in made.report.notes)
    with pytest.raises(QueryError, match="no metric 'worth' of steps"):
        weight(tmp_path / "store", None, scheme="gae", critic="worth")
    write_episodes(tmp_path / "gap", [valued, episode("b")], kind="test", metrics=[critic])
    with pytest.raises(DataError, match="episode b step 0 has no value"):
        weight(tmp_path / "gap", None, scheme="gae", critic="value")


@pytest.mark.full
def test_exponential_weights_are_cut_off_and_never_overflow(attempts: Attempts, tmp_path: Path) -> None:
    store = attempts([episode("a", 1.0), episode("b", 0.0)])
    weight(store.path, tmp_path / "one", scheme="exponential")
    assert weights(tmp_path / "one")["a"] == pytest.approx([math.exp(0.5)] * 2)
    assert weights(tmp_path / "one")["b"] == pytest.approx([math.exp(-0.5)] * 2)
    weight(store.path, tmp_path / "cold", scheme="exponential", temperature=1e-300, clip=5.0)
    assert weights(tmp_path / "cold") == {"a": [5.0] * 2, "b": [0.0] * 2}


@pytest.mark.full
def test_a_mean_is_rounded_once_in_whatever_order_the_scores_come(attempts: Attempts, tmp_path: Path) -> None:
    scores = (1e16, 1.0, -1e16)  # one by one they add up to 0 or to 1
    episodes = [episode(f"ep-{number}", score) for number, score in enumerate(scores)]
    for number, parts in enumerate([[[0], [1], [2]], [[0], [2], [1]], [[2, 1, 0]]]):
        goal = tmp_path / str(number)
        weight(attempts(episodes, parts).path, goal, scheme="advantage", threads=1)
        assert weights(goal)["ep-1"] == [1.0 - 1 / 3] * 2


def test_no_weight_is_minus_0(attempts: Attempts, tmp_path: Path) -> None:
    store = attempts([episode("a", -0.0), episode("b", 1.0)])
    weight(store.path, tmp_path / "out", scheme="return")
    assert [math.copysign(1, value) for value in weights(tmp_path / "out")["a"]] == [1, 1]


@pytest.mark.full
def test_normalised_weights_have_the_mean_size_1_in_each_task(attempts: Attempts, tmp_path: Path) -> None:
    store = attempts(
        [episode("a", 10.0), episode("b", 30.0), episode("c", 0.1, task="open", rewards=(0.0,) * 3)]
    )
    weight(store.path, tmp_path / "task", scheme="return", normalize="task")
    assert weights(tmp_path / "task") == {"a": [0.5] * 2, "b": [1.5] * 2, "c": [1.0] * 3}
    made = weight(store.path, tmp_path / "all", scheme="return", normalize="all")
    assert made.report.all.mean == pytest.approx(1.0)
    tasks = {each.task: each for each in made.report.tasks}
    assert tasks["world/goto"].median == pytest.approx(20 * 7 / 80.3)


@pytest.mark.full
def test_a_score_to_be_kept_small_counts_negated(tmp_path: Path) -> None:
    cost = Metric(name="cost", level=MetricLevel.EPISODE, kind=FeedbackKind.FLOAT, optimize="min")
    episodes = [episode("a", metrics={"cost": 3.0}), episode("b", metrics={"cost": 1.0})]
    write_episodes(tmp_path / "store", episodes, kind="test", metrics=[cost])
    weight(tmp_path / "store", tmp_path / "out", scheme="advantage", score="cost")
    assert weights(tmp_path / "out") == {"a": [-1.0] * 2, "b": [1.0] * 2}


@pytest.mark.full
def test_masked_steps_stay_masked_and_weights_of_0_are_taken_up_again(
    attempts: Attempts, tmp_path: Path
) -> None:
    bad = episode("a", 1.0, step={"action_valid": False})
    store = attempts([bad, episode("b", 0.0), episode("c", 0.5)])
    mask(store.path, tmp_path / "masked", reasons=["invalid"])
    made = weight(tmp_path / "masked", tmp_path / "first", scheme="advantage")
    # the masked attempt still says what the group can do: the mean of 1, 0 and 0.5
    assert weights(tmp_path / "first") == {"a": [0.0] * 2, "b": [-0.5] * 2, "c": [0.0] * 2}
    assert (made.report.all.n_steps, made.report.all.n_zero) == (4, 2)
    weight(tmp_path / "first", tmp_path / "again", scheme="uniform")
    assert weights(tmp_path / "again") == {"a": [0.0] * 2, "b": [1.0] * 2, "c": [1.0] * 2}
    first = next(iter(open_dataset(tmp_path / "again")))
    assert {one.mask_reason for one in first.steps} == {"invalid action"}


def test_a_temperature_that_leaves_nothing_is_told(attempts: Attempts) -> None:
    below = episode("b", 0.0)
    store = attempts([episode("a", 1.0, step={"loss_weight": 0, "mask_reason": "loop"}), below])
    with pytest.raises(NothingMatched, match="at temperature 1e-09 all of it is too far below the mean"):
        weight(store.path, None, scheme="exponential", temperature=1e-9)


@pytest.mark.full
def test_equal_returns_are_said_to_be_equal(attempts: Attempts, tmp_path: Path) -> None:
    store = attempts([episode("a", 0.1), episode("b", 0.1), episode("c", 0.1)])
    with pytest.raises(NothingMatched, match=r"every episode .* has the score 0\.1 \(3 of them\)"):
        weight(store.path, tmp_path / "out", scheme="advantage")
    made = weight(store.path, tmp_path / "out", scheme="exponential")
    assert weights(tmp_path / "out") == {name: [1.0, 1.0] for name in "abc"}
    assert any(
        "has the score 0.1 (3 of them): the weights are all equal" in note for note in made.report.notes
    )
    alone = attempts([episode("a", 0.1), episode("b", 0.9, seed=2)])
    with pytest.raises(NothingMatched, match="no group has two attempts of different scores"):
        weight(alone.path, None, scheme="advantage")


def test_a_missing_score_is_named(attempts: Attempts) -> None:
    store = attempts([episode("a", 0.5), episode("b")])
    with pytest.raises(DataError, match="1 of 2 episodes have no episode_return, such as b"):
        weight(store.path, None, scheme="return")
    with pytest.raises(QueryError, match="no metric 'score_x'"):
        weight(store.path, None, scheme="return", score="score_x")
    nothing = attempts([episode("a")])
    with pytest.raises(QueryError, match="neither a metric episode_return nor a total_reward"):
        weight(nothing.path, None, scheme="return")


def test_episodes_without_the_groups_column_are_groups_of_their_own_and_counted(attempts: Attempts) -> None:
    store = attempts(
        [episode("a", 1.0, tags={"who": "x"}), episode("b", 0.0, tags={"who": "x"}), episode("c", 3.0)]
    )
    made = weight(store.path, None, scheme="advantage", by=("tags.who",))
    assert any("1 of 3 episodes lack tags.who" in note for note in made.report.notes)
    assert (made.report.all.least, made.report.all.most) == (-0.5, 0.5)


@pytest.mark.full
@pytest.mark.parametrize("score", [1.7e308, 1e39])
def test_weights_that_no_trainer_could_hold_are_refused(attempts: Attempts, score: float) -> None:
    store = attempts([episode("a", score), episode("b", -score), episode("c", -score)])
    with pytest.raises(DataError, match=r"episode a step 0: the weight .* is too large"):
        weight(store.path, None, scheme="advantage")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"scheme": "best"}, "scheme 'best'"),
        ({"scheme": "return-to-go"}, "needs --gamma"),
        ({"scheme": "return-to-go", "gamma": 1.5}, "--gamma 1.5 is not from 0 to 1"),
        ({"scheme": "return", "gamma": 1.0}, "--gamma is for the scheme return-to-go"),
        ({"scheme": "exponential", "temperature": 0.0}, "--temperature 0.0 is not above 0"),
        ({"scheme": "exponential", "clip": float("nan")}, "clip"),
        ({"scheme": "uniform", "score": "x"}, "--score is for"),
        ({"scheme": "advantage", "baseline": "task", "by": ("seed",)}, "--by makes groups"),
        ({"scheme": "uniform", "shape": 1}, "no option 'shape'"),
        ({"scheme": "gae"}, "gae needs --critic"),
        ({"scheme": "gae", "critic": "value", "lam": 2.0}, "--lam 2.0 is not from 0 to 1"),
        ({"scheme": "gigpo", "history": -1}, "--history -1 is below 0"),
        ({"scheme": "rloo", "no_deviation": True}, "--no-deviation is for the scheme grpo or gigpo"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        weight("nowhere", None, **options)


def test_the_effective_size_is_kishs(attempts: Attempts) -> None:
    store = attempts([episode("a", 3.0, rewards=(0.0,)), episode("b", 1.0, rewards=(0.0,) * 2)])
    spread = weight(store.path, None, scheme="return").report.all
    assert spread.n_effective_steps == pytest.approx((3 + 1 + 1) ** 2 / (9 + 1 + 1))
    assert spread.n_effective_episodes == pytest.approx((3 + 2) ** 2 / (9 + 4))
    assert (spread.least, spread.median, spread.most, spread.mean) == (1, 1, 3, pytest.approx(5 / 3))


_SCORE = st.floats(-1e6, 1e6) | st.sampled_from([0.0, -0.0, 0.1, 1.0])
_RUN = st.fixed_dictionaries(
    {
        "score": _SCORE,
        "rewards": st.lists(_SCORE, min_size=1, max_size=4),
        "seed": st.sampled_from([None, 1, 2]),
        "task": st.sampled_from([None, "goto"]),
    }
)
_OPTIONS: list[dict[str, Any]] = [
    {"scheme": "return"},
    {"scheme": "return-to-go", "gamma": 0.9, "normalize": "task"},
    {"scheme": "advantage", "baseline": "task", "normalize": "all"},
    {"scheme": "exponential", "temperature": 0.1},
    {"scheme": "gigpo", "gamma": 0.9, "history": 1},
]


@pytest.mark.full
@portions(4)
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), runs=st.lists(_RUN, min_size=1, max_size=6), options=st.sampled_from(_OPTIONS))
def test_weights_are_finite_and_do_not_depend_on_the_order_of_rows(
    portion: int,
    attempts: Attempts,
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    runs: list[dict[str, Any]],
    options: dict[str, Any],
) -> None:
    episodes = [episode(f"ep-{number}", **run) for number, run in enumerate(runs)]
    order = data.draw(st.permutations(range(len(episodes))))
    cut = data.draw(st.integers(0, len(order)))
    layouts = [None, [part for part in (order[:cut], order[cut:]) if part]]
    folder = tmp_path_factory.mktemp("weights")
    found = []
    for number, layout in enumerate(layouts):
        store = attempts(episodes, layout)
        try:
            made = weight(store.path, folder / str(number), threads=1 + number, **options)
        except NothingMatched as error:
            found.append(str(error.hint))
            continue
        every = [value for each in weights(folder / str(number)).values() for value in each]
        assert all(map(math.isfinite, every))
        assert all(math.copysign(1, value) == 1 for value in every if value == 0)
        spread = made.report.all
        n_counting = sum(value != 0 for value in every)
        assert 1 - 1e-9 <= spread.n_effective_steps <= n_counting * (1 + 1e-9)
        assert spread.n_steps == len(every)
        assert sum(each.n_steps for each in made.report.tasks) == len(every)
        found.append(f"{made.manifest.digest} {made.report.model_dump_json()}")
    assert len(set(found)) == 1
