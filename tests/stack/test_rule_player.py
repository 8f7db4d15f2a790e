from __future__ import annotations

import random

import pytest

from tests.matrix import daily
from trajkit.environments.babyai import TASKS, BabyAI
from trajkit.stack.rule_player import (
    ACTIONS,
    Goal,
    Look,
    Past,
    Thing,
    is_sight,
    play,
    read_mission,
    read_view,
    remembered,
)
from trajkit.stack.rule_prompt import Message, Prompt, read_prompt

WALL = "a wall 5 steps forward"
BALL, BOX, KEY = Look("red", "ball"), Look("grey", "box"), Look("blue", "key")
SYSTEM = Message(
    "system", "You steer a robot. pick up: take the object under you.\nYour mission: go to the red ball."
)


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


# -- what it sees --------------------------------------------------------------------------------------------


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
    past = Past("a wall 4 steps forward\na red ball 2 steps left and 3 steps forward", action)

    assert remembered([past], now) == (Thing(BALL, right, forward),)


def test_a_step_against_a_wall_moves_nothing() -> None:
    now = read_view("a wall 1 step forward")

    kept = remembered([Past("a wall 1 step forward\na red ball 2 steps left", "go forward")], now)

    assert kept == (Thing(BALL, -2, 0),)


def test_what_is_seen_or_carried_is_not_a_memory() -> None:
    now = read_view("You carry a red ball\na grey box 1 step left")

    assert remembered([Past("a red ball 1 step forward\na grey box 1 step left", "pick up")], now) == ()


def test_what_lies_before_an_unreadable_step_is_forgotten() -> None:
    now = read_view("a wall 1 step forward")

    assert remembered([Past("a red ball 2 steps left", "turn left"), Past("???", "turn left")], now) == ()


# -- prompts -------------------------------------------------------------------------------------------------


def test_the_current_observation_ends_the_last_user_message() -> None:
    user = Message(
        "user",
        'Observation:\na wall 1 step left\na red ball 1 step forward\n\nAnswer in JSON: {"action": "drop"}',
    )

    assert read_prompt([SYSTEM, user]) == Prompt(
        "go to the red ball", "a wall 1 step left\na red ball 1 step forward", (), True
    )


def test_blocks_of_observation_and_action_before_it_are_history() -> None:
    user = Message(
        "user",
        "History:\nObservation: a wall 3 steps forward\na wall 1 step left\nAction: go forward\n"
        "Note: your answer named no action, so this default was carried out.\n\n"
        "Observation: a wall 2 steps forward\nAction: turn left\n\n"
        "Observation:\na wall 1 step right\n\nAnswer.",
    )

    prompt = read_prompt([SYSTEM, user])

    assert prompt.observation == "a wall 1 step right"
    assert prompt.history == (
        Past("a wall 3 steps forward\na wall 1 step left", "go forward"),
        Past("a wall 2 steps forward", "turn left"),
    )


def test_a_conversation_is_history_too() -> None:
    messages = [
        SYSTEM,
        Message("user", "Observation:\na wall 3 steps forward"),
        Message("assistant", '{"thinking": "", "action": "turn right"}'),
        Message("user", "Observation:\na wall 2 steps forward"),
        Message("assistant", "fly away"),
        Message("user", "Observation:\na wall 1 step forward"),
    ]

    prompt = read_prompt(messages)

    assert prompt.observation == "a wall 1 step forward"
    assert prompt.history == (
        Past("a wall 3 steps forward", "turn right"),
        Past("a wall 2 steps forward", "go forward"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "## Observation:\na wall 1 step left\n",
        "**Current observation:** a wall 1 step left",
        "observation: a wall 1 step left",
        "You see this:\na wall 1 step left\nWhat now?",
        "Observation:\n\n  a wall 1 step left  \n",
    ],
)
def test_headings_may_be_worded_otherwise_or_be_missing(text: str) -> None:
    assert read_prompt([SYSTEM, Message("user", text)]).observation == "a wall 1 step left"


@pytest.mark.parametrize(
    ("system", "mission"),
    [
        ("Your goal is to put the red ball next to the grey box!", "put the red ball next to the grey box"),
        ("Mission:\nopen the door", "open the door"),
        ('Such as "go to the red key".\nTask: pick up a blue key, then go to a blue key', None),
        (
            "GO TO THE GREEN BOX AFTER YOU PICK UP THE RED BALL",
            "GO TO THE GREEN BOX AFTER YOU PICK UP THE RED BALL",
        ),
        ("Do as you like.", ""),
    ],
)
def test_the_mission_is_found_by_its_grammar(system: str, mission: str | None) -> None:
    found = read_prompt([Message("system", system), Message("user", "a wall 1 step left")]).mission

    assert found == ("pick up a blue key, then go to a blue key" if mission is None else mission)


def test_nothing_to_read_is_empty() -> None:
    assert read_prompt([Message("user", "")]) == Prompt("", "", (), True)
    assert read_prompt([Message("tool", "Observation:\na wall 1 step left")]).observation == ""


def test_it_hears_when_thinking_is_to_be_left_empty() -> None:
    user = Message("user", 'Observation:\na wall 1 step left\nLeave "thinking" empty.')

    assert not read_prompt([SYSTEM, user]).wants_thinking
