"""What every environment promises, whichever it is."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest

from trajkit.environments import environment_info, known
from trajkit.environments.base import Environment, HasExpert, Result
from trajkit.errors import RequestError, RolloutError

CASES = [(env_id, task) for env_id in known() for task in environment_info(env_id).tasks]


@pytest.fixture(params=CASES, ids=lambda case: "/".join(case))
def world(request: pytest.FixtureRequest) -> Iterator[Environment]:
    env_id, task = request.param
    environment = environment_info(env_id).make(task)
    yield environment
    environment.close()


def play(world: Environment, *, seed: int, choices: int = 0) -> list[Result]:
    """Random legal actions, the same ones for the same `choices`, until the episode ends."""
    chance = random.Random(choices)
    world.reset(seed)
    results = []
    while not results or not (results[-1].terminated or results[-1].truncated):
        results.append(world.step(chance.choice(world.legal_actions())))
    return results


def test_it_says_which_environment_and_task_it_is(world: Environment) -> None:
    info = environment_info(world.env_id)

    assert info.env_id == world.env_id
    assert world.task in info.tasks


def test_it_begins_with_words_and_a_hash(world: Environment) -> None:
    start = world.reset(5)

    assert start.mission.strip() == start.mission != ""
    assert start.observation != ""
    assert len(start.initial_state_hash) == 64


def test_the_same_seed_and_actions_give_the_same_episode(world: Environment) -> None:
    first = world.reset(7)
    episode = play(world, seed=7)

    assert world.reset(7) == first
    assert play(world, seed=7) == episode


def test_different_seeds_differ(world: Environment) -> None:
    assert len({world.reset(seed).initial_state_hash for seed in range(10)}) == 10


def test_two_worlds_at_once_do_not_touch_each_other(world: Environment) -> None:
    alone = play(world, seed=3)
    other = environment_info(world.env_id).make(world.task)
    chance = random.Random(0)
    world.reset(3)
    other.reset(4)

    together = []
    for _ in alone:
        together.append(world.step(chance.choice(world.legal_actions())))
        if len(together) < 20:
            other.step(other.legal_actions()[0])

    assert together == alone


def test_every_legal_action_is_carried_out_as_said(world: Environment) -> None:
    for action in world.reset(1) and world.legal_actions():
        world.reset(1)
        result = world.step(action)

        assert (result.action_executed, result.action_valid) == (action, True)


@pytest.mark.parametrize("text", [None, "", "fly away", "\n", "你好", "x" * 10_000])
def test_an_invalid_answer_is_the_default_action_and_is_marked(world: Environment, text: str | None) -> None:
    world.reset(2)
    invalid = world.step(text)
    rule = environment_info(world.env_id).rule
    world.reset(2)
    assert rule is not None
    default = world.step(rule.default)

    assert invalid == default._replace(action_valid=False)
    assert default.action_valid


def test_rewards_and_statistics_are_finite_numbers(world: Environment) -> None:
    rewards = [result.reward for result in play(world, seed=11)]

    assert all(isinstance(reward, float) and math.isfinite(reward) for reward in rewards)
    assert all(isinstance(score, float) and math.isfinite(score) for score in world.statistics().values())


def test_stepping_before_the_beginning_is_refused(world: Environment) -> None:
    with pytest.raises(RolloutError, match="no episode was begun"):
        world.step("anything")


def test_stepping_after_the_end_is_refused_until_the_next_reset(world: Environment) -> None:
    play(world, seed=9)

    with pytest.raises(RolloutError, match="the episode is over"):
        world.step(world.legal_actions()[0])
    world.reset(9)
    world.step(world.legal_actions()[0])


def test_closing_twice_is_allowed(world: Environment) -> None:
    world.reset(0)
    world.close()
    world.close()


def test_an_expert_finishes_what_others_began(world: Environment) -> None:
    if not isinstance(world, HasExpert):
        pytest.skip(f"{world.env_id} has no expert")
    chance = random.Random(1)
    n_solved = 0
    for seed in range(10):
        world.reset(seed)
        result = world.step(world.legal_actions()[0])
        while not (result.terminated or result.truncated):
            advice = world.expert_action()
            result = world.step(chance.choice(world.legal_actions()) if chance.random() < 0.3 else advice)
        n_solved += result.terminated and result.reward > 0

    assert n_solved >= 8


def test_a_task_that_is_not_there_is_refused_with_the_list() -> None:
    for env_id in known():
        info = environment_info(env_id)
        with pytest.raises(RequestError, match=f"no task 'fly'.*{info.tasks[0]}"):
            info.make("fly")
