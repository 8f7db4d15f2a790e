from __future__ import annotations

import pytest

from trajkit.stack.rule_player import Past
from trajkit.stack.rule_prompt import Message, Prompt, read_prompt

SYSTEM = Message(
    "system", "You steer a robot. pick up: take the object under you.\nYour mission: go to the red ball."
)


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
