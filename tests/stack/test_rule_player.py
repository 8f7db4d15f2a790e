from __future__ import annotations

import random

import pytest

from tests.matrix import daily
from trajkit.environments.babyai import TASKS, BabyAI
from trajkit.stack.rule_player import ACTIONS, Past, play

WALL = "a wall 5 steps forward"


def solved(task: str, *, n_seeds: int, n_history: int, mistakes: float) -> float:
    """Share of seeds that the player solves."""
    n_solved = 0.0
    for seed in range(n_seeds):
        world = BabyAI(task)
        mission, observation, *_ = world.reset(seed)
        past: list[Past] = []
        while True:
            chance = random.Random(f"{seed} {len(past)} {observation}")
            is_mistake = chance.random() < mistakes
            history = past[-n_history:] if n_history else []
            move = play(mission, observation, history, chance=chance)
            result = world.step(chance.choice(ACTIONS) if is_mistake else move.action)
            past.append(Past(observation, result.action_executed))
            observation = result.observation
            if result.terminated or result.truncated:
                n_solved += world.statistics()["progression"]
                break
    return n_solved / n_seeds


@pytest.mark.parametrize(
    ("mission", "observation", "action"),
    [
        ("go to the red ball", f"{WALL}\na red ball 1 step right", "turn right"),
        ("go to the red ball", f"{WALL}\na red ball 1 step left", "turn left"),
        ("go to the red ball", f"{WALL}\na red ball 1 step left and 2 steps forward", "go forward"),
        ("go to the red ball", "a red ball 3 steps forward", "go forward"),
        ("pick up the red ball", "a red ball 1 step forward", "pick up"),
        ("pick up the red ball", f"You carry a blue key\n{WALL}", "drop"),
        ("open the blue door", "You carry a blue key\na locked blue door 1 step forward", "toggle"),
        ("open the door", f"{WALL}\na blue key 1 step right\na locked blue door 2 steps left", "turn right"),
        ("open the door", "a blue key 1 step forward", "pick up"),
        ("open the door", "a closed blue door 1 step forward", "toggle"),
        ("put the red ball next to the grey box", "a red ball 1 step forward", "pick up"),
        ("put the red ball next to the grey box", "You carry a red ball\na grey box 2 steps forward", "drop"),
        (
            "put the red ball next to the grey box",
            f"You carry a red ball\n{WALL}\na grey box 1 step left and 1 step forward",
            "drop",
        ),
        ("pick up the red ball, then go to the blue key", f"{WALL}\na red ball 1 step left", "turn left"),
        (
            "go to the blue key after you pick up the red ball",
            f"You carry a red ball\n{WALL}\na blue key 1 step right",
            "turn right",
        ),
    ],
)
def test_it_does_what_the_mission_needs(mission: str, observation: str, action: str) -> None:
    assert play(mission, observation).action == action


def test_it_remembers_with_a_history_what_it_no_longer_sees() -> None:
    past = Past(f"{WALL}\na red ball 2 steps right and 1 step forward", "go forward")

    assert (
        play("go to the red ball", "a wall 4 steps forward\na red ball 2 steps right", [past]).action
        == "turn right"
    )
    turned = Past("a wall 4 steps forward\na red ball 2 steps right", "turn left")
    assert play("go to the red ball", WALL, [past, turned]).action != "go forward"


def test_it_knows_by_its_history_that_it_picked_up_and_put_down() -> None:
    past = [
        Past(f"You carry a red ball\n{WALL}", "drop"),
        Past("a red ball 1 step forward", "turn left"),
    ]
    seen = f"{WALL}\na blue key 1 step right"

    assert "blue key" in play("pick up the red ball, then go to the blue key", seen, past).thinking
    assert "red ball" in play("pick up the red ball, then go to the blue key", seen).thinking


def test_it_does_not_repeat_with_a_history_what_changed_nothing() -> None:
    seen = f"You carry a blue key\n{WALL}\na grey box 1 step forward"

    move = play("open the door", seen, [Past(seen, "go forward")])

    assert move.action in ("turn left", "turn right")


@pytest.mark.parametrize(
    ("mission", "observation", "words"),
    [
        ("", WALL, "cannot find a mission"),
        ("win the game", WALL, "cannot find a mission"),
        ("go to the red ball", "", "cannot find an observation"),
        ("go to the red ball", "Nothing.", "cannot find an observation"),
    ],
)
def test_it_goes_forward_and_says_so_when_it_cannot_read(mission: str, observation: str, words: str) -> None:
    move = play(mission, observation)

    assert move.action == "go forward"
    assert words in move.thinking


def test_the_same_question_has_the_same_answer() -> None:
    asked = [("go to the red ball", WALL, [Past(WALL, "toggle")])] * 2

    assert len({play(*question, chance=random.Random(5)) for question in asked}) == 1


@pytest.mark.parametrize("task", daily(["goto", "open", "pickup", "putnext", "pick_up_seq_go_to"], 1))
def test_it_plays_between_random_and_expert(task: str) -> None:
    low, high = (0.5, 0.95) if task in ("goto", "pickup") else (0.1, 0.9)
    assert low <= solved(task, n_seeds=40, n_history=0, mistakes=0.24) <= high


@pytest.mark.full
def test_a_history_makes_it_better_at_every_task() -> None:
    without = {task: solved(task, n_seeds=30, n_history=0, mistakes=0.1) for task in TASKS}
    with_history = {task: solved(task, n_seeds=30, n_history=8, mistakes=0.1) for task in TASKS}

    assert [task for task in TASKS if with_history[task] <= without[task]] == []
