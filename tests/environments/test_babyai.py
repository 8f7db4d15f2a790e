from __future__ import annotations

import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.matrix import daily
from trajkit.environments.babyai import ACTIONS, TASKS, BabyAI
from trajkit.environments.babyai_level import Level, describe, state_hash
from trajkit.errors import MissingExtra, RequestError, RolloutError


def differences(trace: dict[str, Any]) -> list[str]:
    """Where our episode is not the recorded one."""
    world = BabyAI(trace["task"].partition("/")[2])
    start = world.reset(trace["seed"])
    found = [] if start.mission == trace["mission"] else ["mission"]
    found += [] if start.observation == trace["obs"][0] else ["first observation"]
    found += [] if world.max_steps == trace.get("max_steps", world.max_steps) else ["max_steps"]
    for index, action in enumerate(trace["acts"]):
        result = world.step(action)
        found += [] if result.observation == trace["obs"][index + 1] else [f"observation {index + 1}"]
        found += [] if result.reward == trace["rew"][index] else [f"reward {index}"]
        if "term" in trace:
            ends = (trace["term"][index], trace["trunc"][index])
            found += [] if (result.terminated, result.truncated) == ends else [f"end {index}"]
    score = trace["p"] if "p" in trace else trace["progression"]
    return found + ([] if world.statistics() == {"progression": score} else ["progression"])


def solve(task: str, seed: int) -> tuple[bool, int]:
    """Play the expert's advice: whether it succeeded, and the number of steps."""
    world = BabyAI(task)
    world.reset(seed)
    n_steps = 0
    while True:
        result = world.step(world.expert_action())
        n_steps += 1
        if result.terminated or result.truncated:
            return world.statistics()["progression"] == 1.0, n_steps


@pytest.mark.full
@pytest.mark.parametrize("part", daily(range(4), 1))
def test_all_recorded_episodes_replay_without_a_difference(traces: list[dict[str, Any]], part: int) -> None:
    assert Counter(trace["task"].partition("/")[2] for trace in traces) == dict.fromkeys(TASKS, 50)

    assert {(t["task"], t["seed"]): found for t in traces[part::4] if (found := differences(t))} == {}


@pytest.mark.parametrize(
    ("task", "limit"),
    daily([("goto", 64), ("pickup", 64), ("open", 128), ("putnext", 128), ("pick_up_seq_go_to", 128)], 2),
)
def test_an_idle_episode_is_truncated_at_the_limit_of_its_task(task: str, limit: int) -> None:
    world = BabyAI(task)
    world.reset(0)
    results = [world.step("drop") for _ in range(limit)]

    assert world.max_steps == limit
    assert [result.truncated for result in results] == [False] * (limit - 1) + [True]
    assert not any(result.terminated or result.reward for result in results)
    assert world.statistics() == {"progression": 0.0}


def test_success_pays_by_the_number_of_steps() -> None:
    is_solved, n_steps = solve("goto", 300)
    world = BabyAI("goto")
    world.reset(300)
    result = world.step(world.expert_action())
    while not result.terminated:
        result = world.step(world.expert_action())

    assert is_solved
    assert result.reward == 1 - 0.9 * (n_steps / 64)
    assert not result.truncated


@pytest.mark.parametrize("task", daily(TASKS, 2))
def test_the_expert_solves_forty_seeds(task: str) -> None:
    assert [seed for seed in range(10_000, 10_040) if not solve(task, seed)[0]] == []


@pytest.mark.parametrize("task", daily(TASKS, 2))
def test_an_expert_that_is_asked_late_knows_what_was_done_before(task: str) -> None:
    def plays(n_alone: int) -> list[str]:
        chance = random.Random(3)
        world = BabyAI(task)
        world.reset(21)
        for _ in range(6):
            if n_alone == 0:
                world.expert_action()
            world.step(chance.choice(ACTIONS[:3]))
        advice = []
        while True:
            advice.append(world.expert_action())
            result = world.step(advice[-1])
            if result.terminated or result.truncated:
                return [*advice, result.observation]

    assert plays(n_alone=6) == plays(n_alone=0)


def test_asking_the_expert_twice_is_asking_once() -> None:
    world = BabyAI("putnext")
    world.reset(4)

    assert world.expert_action() == world.expert_action()


def test_the_expert_plays_on_to_the_limit_when_the_box_it_needs_is_gone() -> None:
    world = BabyAI("pickup")
    mission = world.reset(300).mission
    for action in (*["go forward"] * 4, "turn left"):
        beside = world.step(action)
    opened = world.step("toggle")

    assert mission == "pick up the grey box"
    assert "a grey box 1 step forward" in beside.observation
    assert "box" not in opened.observation
    results = [world.step(world.expert_action()) for _ in range(64 - 6)]
    assert results[-1].truncated
    assert not any(result.reward for result in results)


def test_the_expert_needs_an_episode() -> None:
    with pytest.raises(RolloutError, match="no episode was begun"):
        BabyAI("goto").expert_action()


def test_invalid_answers_are_marked_and_go_forward() -> None:
    world = BabyAI("goto")
    world.reset(0)
    results = [world.step(text) for text in ("Go Forward", " turn left", None, "turn left")]

    assert [result.action_executed for result in results] == ["go forward"] * 3 + ["turn left"]
    assert [result.action_valid for result in results] == [False, False, False, True]


def test_no_mission_names_what_is_held_out() -> None:
    missions = [BabyAI(task).reset(seed).mission for task in TASKS for seed in range(60)]
    held_out = ("yellow box", "red key", "red door", "green ball", "grey door")

    assert [mission for mission in missions if any(name in mission for name in held_out)] == []


def test_threads_that_play_at_once_get_the_worlds_they_asked_for() -> None:
    def begin(seed: int) -> str:
        return BabyAI("putnext").reset(seed).initial_state_hash

    alone = [begin(seed) for seed in range(60)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(begin, range(60))) == alone


def test_the_hash_sees_what_the_agent_does_not() -> None:
    level = Level("pick_up_seq_go_to")
    text = level.begin(302)
    before = state_hash(level, "pick_up_seq_go_to")
    assert "ball" not in text
    ball = next(item for item in level.grid.grid if item is not None and item.type == "ball")
    ball.color = "grey"

    assert describe(level.gen_obs()["image"], level.carrying) == text
    assert state_hash(level, "pick_up_seq_go_to") != before
    assert state_hash(level, "putnext") != state_hash(level, "pick_up_seq_go_to")


def test_two_tasks_of_a_seed_may_begin_in_the_same_room_with_other_missions() -> None:
    goto, pickup, door = (BabyAI(task).reset(200) for task in ("goto", "pickup", "open"))
    assert goto.room_hash == pickup.room_hash != door.room_hash
    assert goto.initial_state_hash != pickup.initial_state_hash
    assert BabyAI("goto").reset(201).room_hash != goto.room_hash


def test_the_hash_sees_the_door_and_the_limit() -> None:
    level = Level("open")
    level.begin(0)
    hashes = {state_hash(level, "open")}
    level.max_steps += 1
    hashes.add(state_hash(level, "open"))
    door = next(item for item in level.grid.grid if item is not None and item.type == "door")
    door.is_locked = False
    hashes.add(state_hash(level, "open"))

    assert len(hashes) == 3


def test_a_carried_object_and_an_open_door_are_described() -> None:
    level = Level("open")
    level.begin(2)
    key = next(item for item in level.grid.grid if item is not None and item.type == "key")
    door = next(item for item in level.grid.grid if item is not None and item.type == "door")
    level.carrying, door.is_locked, door.is_open = key, False, True
    seen = describe(level.gen_obs()["image"], level.carrying).splitlines()

    assert seen[0] == "You carry a yellow key"
    assert "a open yellow door 1 step left and 3 steps forward" in seen


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(RequestError, match="seed -1 is negative"):
        BabyAI("goto").reset(-1)


def test_without_minigrid_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minigrid", None)

    with pytest.raises(MissingExtra, match=r"trajkit\[babyai\]"):
        BabyAI("goto")
