"""The contract, over what trajkit has and the examples of the documentation."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matrix import daily
from trajkit.environments import environment_info, known, make, typed_environment
from trajkit.environments.base import Environment, HasExpert
from trajkit.environments.checks.trace import play
from trajkit.environments.contract import CHECKS, Status, check
from trajkit.errors import RequestError

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

BABYAI = [("babyai", task) for task in environment_info("babyai").tasks]
# of the others' many tasks some: a world of each game starts a process of its own
KNOWN = [
    *BABYAI,
    ("textworld", "cookingworld"),
    ("textworld", "sorting-dev"),
    ("textworld", "simonsays-test"),
]
DAILY = [BABYAI[-1], ("textworld", "simonsays-test")]
WRITTEN = [
    ("guess_number:GuessNumber", "easy"),
    ("guess_number:GuessNumber", "hard"),
    ("gym:corridor:Corridor-v0", "default"),
]


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])


@pytest.fixture(
    params=[pytest.param(case, marks=() if case in DAILY else pytest.mark.full) for case in KNOWN],
    ids=lambda case: "/".join(case),
)
def world(request: pytest.FixtureRequest) -> Iterator[Environment]:
    environment = make(*request.param)
    yield environment
    environment.close()


@pytest.fixture(params=BABYAI, ids=lambda case: "/".join(case))
def babyai(request: pytest.FixtureRequest) -> Iterator[Environment]:
    environment = make(*request.param)
    yield environment
    environment.close()


def test_every_known_environment_is_among_them() -> None:
    assert {env_id for env_id, _ in KNOWN} == set(known())


@pytest.mark.parametrize(
    ("env_id", "task"), daily([*KNOWN, *WRITTEN], [BABYAI[-1], WRITTEN[0]]), ids=lambda case: case
)
def test_every_promise_is_kept(env_id: str, task: str) -> None:
    # a world of the games is slow
    found = list(check(env_id, tasks=[task], seeds=range(2 if env_id == "textworld" else 4)))
    skipped = {one.name for one in found if one.status == Status.SKIPPED}

    assert [one.name for one in found] == list(CHECKS)
    assert [one for one in found if one.status in (Status.FAILED, Status.WARNING)] == []
    assert skipped == (set() if env_id != "gym:corridor:Corridor-v0" else {"expert"})


def test_ten_seeds_of_a_known_environment_are_ten_worlds_that_say_their_mission(world: Environment) -> None:
    starts = [world.reset(seed) for seed in range(10)]

    assert {len(start.initial_state_hash) for start in starts} == {64}
    assert len({start.initial_state_hash for start in starts}) == 10
    assert [start.mission.strip() for start in starts] == [start.mission for start in starts]


def test_an_invalid_answer_is_the_default_action_and_is_marked(babyai: Environment) -> None:
    rule = environment_info(babyai.env_id).rule
    assert rule is not None
    babyai.reset(2)
    default = babyai.step(rule.default)
    assert default.action_valid
    for text in (None, "", "fly away", "\n", "你好", "x" * 10_000):
        babyai.reset(2)
        assert babyai.step(text) == default._replace(action_valid=False)


def test_an_expert_finishes_what_others_began(babyai: Environment) -> None:
    assert isinstance(babyai, HasExpert)
    chance = random.Random(1)
    n_solved = 0
    for seed in range(10):
        babyai.reset(seed)
        result = babyai.step(babyai.legal_actions()[0])
        while not (result.terminated or result.truncated):
            advice = babyai.expert_action()
            result = babyai.step(chance.choice(babyai.legal_actions()) if chance.random() < 0.3 else advice)
        n_solved += result.terminated and result.reward > 0

    assert n_solved >= 8


def test_a_task_that_is_not_there_is_refused_with_the_list() -> None:
    for env_id in ("babyai", "guess_number:GuessNumber"):
        info = typed_environment(env_id)
        with pytest.raises(RequestError, match=f"no task 'fly'.*{info.tasks[0]}"):
            info.make("fly")
        with pytest.raises(RequestError, match=f"no task 'fly'.*{info.tasks[0]}"):
            next(check(env_id, tasks=["fly"]))


def test_random_actions_follow_from_the_seed() -> None:
    one, other = (play(make("babyai", "goto"), 3, n_steps=9) for _ in range(2))

    assert one == other
    assert len({result.action_executed for result in one.results}) > 2
    assert one.start != play(make("babyai", "goto"), 4, n_steps=9).start
