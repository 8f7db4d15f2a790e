"""Find the mission, the observation and the history in a prompt, whatever its other text.

The mission is a sentence of BabyAI's grammar, first searched in a line that contains mission,
goal or task. The observation follows the last heading `Observation:` of the last user message. An earlier
`Observation:` with an `Action:` after it is history; so is a user message with an assistant message after it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from trajkit.stack.rule_player import ACTIONS, MISSION, Past, is_sight

_SAYS_MISSION = re.compile(r"\b(?:mission|goal|task)\b", re.IGNORECASE)
_OBSERVATION = re.compile(r"\W*(?:current )?observation\s*:\W*(.*)", re.IGNORECASE)
_ACTION = re.compile(r"\W*action\s*:\W*(.*?)\W*", re.IGNORECASE)
_NO_THINKING = re.compile(r"leave\W+thinking\W+empty", re.IGNORECASE)


class Message(NamedTuple):
    """One message of a prompt, as text."""

    role: str
    text: str


class Prompt(NamedTuple):
    """The parts of a prompt."""

    mission: str
    """Mission; empty when there is none."""
    observation: str
    """Observation, one object per line; empty when there is none."""
    history: tuple[Past, ...]
    """Earlier steps, oldest first."""
    wants_thinking: bool
    """Whether the answer may have a reason: the prompt does not ask to leave `thinking` empty."""


class _Seen(NamedTuple):
    history: tuple[Past, ...]
    observation: str


def read_prompt(messages: Sequence[Message]) -> Prompt:
    """Find the parts of a prompt; an assistant message is the player's own earlier answer."""
    asked = [message.text for message in messages if message.role in ("system", "developer", "user")]
    history: list[Past] = []
    observation = ""
    for message in messages:
        if message.role == "user":
            seen = _read_user(message.text)
            history += seen.history
            observation = seen.observation or observation
        elif message.role == "assistant" and observation:
            history.append(Past(observation, _read_answer(message.text)))
            observation = ""
    wants_thinking = not any(_NO_THINKING.search(text) for text in asked)
    return Prompt(_find_mission(asked), observation, tuple(history), wants_thinking)


def _find_mission(texts: Sequence[str]) -> str:
    lines = [line for text in texts for line in text.splitlines()]
    for line in (*filter(_SAYS_MISSION.search, lines), *lines):
        if found := MISSION.search(line):
            return found[0]
    return ""


def _read_user(text: str) -> _Seen:
    """Return the steps in the text, and the observation that has no action after it."""
    history: list[Past] = []
    seen: list[str] = []
    is_reading = not any(
        map(_OBSERVATION.fullmatch, text.splitlines())
    )  # without a heading, any line may be it
    for line in text.splitlines():
        if heading := _OBSERVATION.fullmatch(line):
            seen, is_reading = [], True
            line = heading[1]
        elif (answer := _ACTION.fullmatch(line)) and seen:
            history.append(Past("\n".join(seen), _executed(answer[1])))
            seen, is_reading = [], False
        if is_reading and is_sight(line):
            seen.append(line.strip())
    return _Seen(tuple(history), "\n".join(seen))


def _read_answer(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return _executed(text.strip())
    return _executed(value.get("action") if isinstance(value, dict) else value)


def _executed(action: object) -> str:
    """Return the action that BabyAI executes for an answer: an unknown action is a step forward."""
    return action if isinstance(action, str) and action in ACTIONS else "go forward"
