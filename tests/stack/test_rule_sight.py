from __future__ import annotations

import random

import pytest

from trajkit.environments.babyai import ACTIONS, TASKS, BabyAI
from trajkit.stack.rule_player import Goal, Look, Past, Thing, is_sight, read_mission, read_view, remembered

BALL, BOX, KEY = Look("red", "ball"), Look("grey", "box"), Look("blue", "key")


@pytest.mark.parametrize(
    ("mission", "goals"),
    [
        ("go to the red ball", [Goal("go to", BALL)]),
        ("pick up the grey box", [Goal("pick up", BOX)]),
        ("open the door", [Goal("open", Look(None, "door"))]),
        ("open the yellow door", [Goal("open", Look("yellow", "door"))]),
        ("put the red ball next to the grey box", [Goal("put", BALL, BOX)]),
        ("pick up a red ball, then go to a grey box", [Goal("pick up", BALL), Goal("go to", BOX)]),
        ("go to the grey box after you pick up the red ball", [Goal("pick up", BALL), Goal("go to", BOX)]),
        ("win the game", []),
    ],
)
def test_a_mission_is_its_goals_in_the_order_of_doing(mission: str, goals: list[Goal]) -> None:
    assert list(read_mission(mission)) == goals


def test_an_observation_is_read_whole() -> None:
    view = read_view(
        "You carry a blue key\na wall 1 step forward\na wall 3 steps left\n"
        "a red ball 2 steps left and 1 step forward\na grey box 3 steps right\n"
        "a locked grey door 4 steps forward"
    )

    assert view is not None
    assert view.carried == KEY
    assert view.wall_ahead == 1
    assert view.things == (Thing(BALL, -2, 1), Thing(BOX, 3, 0), Thing(Look("grey", "door"), 0, 4))
    assert not view.is_free_ahead


@pytest.mark.parametrize(
    ("line", "is_free"),
    [
        ("a wall 2 steps forward", True),
        ("a wall 1 step forward", False),
        ("a red ball 1 step forward", False),
        ("a red ball 1 step right and 1 step forward", True),
        ("a locked red door 1 step forward", False),
        ("a open red door 1 step forward", True),
    ],
)
def test_the_way_ahead_is_free_or_not(line: str, is_free: bool) -> None:
    view = read_view(line)

    assert view is not None
    assert view.is_free_ahead is is_free


def test_text_that_is_no_observation_is_none() -> None:
    assert read_view("You wake up in a dark cellar.") is None
    assert read_view("") is None


def test_every_line_that_the_environment_says_is_understood() -> None:
    lines = set()
    for task in TASKS:
        world = BabyAI(task)
        for seed in range(8):
            chance = random.Random(seed)
            lines.update(world.reset(seed).observation.splitlines())
            is_over = False
            while not is_over:
                result = world.step(chance.choice(ACTIONS))
                lines.update(result.observation.splitlines())
                is_over = result.terminated or result.truncated

    assert [line for line in lines if not is_sight(line)] == []
    assert any(line.startswith("You carry") for line in lines)


def test_every_mission_that_the_environment_gives_is_understood() -> None:
    missions = {BabyAI(task).reset(seed).mission for task in TASKS for seed in range(60)}

    assert [mission for mission in missions if not 1 <= len(read_mission(mission)) <= 2] == []


@pytest.mark.parametrize(
    ("action", "right", "forward"),
    [("turn left", 3, 2), ("turn right", -3, -2), ("go forward", -2, 2), ("toggle", -2, 3)],
)
def test_a_thing_out_of_sight_is_remembered_where_it_must_be(action: str, right: int, forward: int) -> None:
    now = read_view("a wall 2 steps left")
    assert now is not None
    past = Past("a wall 4 steps forward\na red ball 2 steps left and 3 steps forward", action)

    assert remembered([past], now) == (Thing(BALL, right, forward),)


def test_a_step_against_a_wall_moves_nothing() -> None:
    now = read_view("a wall 1 step forward")
    assert now is not None

    kept = remembered([Past("a wall 1 step forward\na red ball 2 steps left", "go forward")], now)

    assert kept == (Thing(BALL, -2, 0),)


def test_what_is_seen_or_carried_is_not_a_memory() -> None:
    now = read_view("You carry a red ball\na grey box 1 step left")
    assert now is not None

    assert remembered([Past("a red ball 1 step forward\na grey box 1 step left", "pick up")], now) == ()


def test_what_lies_before_an_unreadable_step_is_forgotten() -> None:
    now = read_view("a wall 1 step forward")
    assert now is not None

    assert remembered([Past("a red ball 2 steps left", "turn left"), Past("???", "turn left")], now) == ()
