"""What is wrong with a row that prefers one answer to another, in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trajkit.formats.openai_rules import ROW_KEYS
from trajkit.formats.validation.chat_rules import (
    conversation_flaws,
    key_flaws,
    message_flaws,
    schema_flaws,
    tool_flaws,
)
from trajkit.formats.validation.content_rules import n_images
from trajkit.formats.validation.finding import Flaw, shown, wrong_type
from trajkit.formats.validation.target import Target

PREFERENCE_KEYS = frozenset({"input", "preferred_output", "non_preferred_output"})
_ANSWERS = ("preferred_output", "non_preferred_output")


def preference_flaws(row: dict[str, Any], target: Target) -> Iterator[Flaw]:
    """Everything for which a row of preference tuning is refused."""
    yield from key_flaws(row, PREFERENCE_KEYS, target)
    given = row.get("input")
    if not isinstance(given, dict):
        yield wrong_type("$.input", 'an object with "messages"', given)
        given = {}
    else:
        yield from _input_flaws(given, target)
    for name in _ANSWERS:
        yield from _answer_flaws(row.get(name), f"$.{name}", given.get("tools"), target)
    if all(isinstance(row.get(name), list) for name in _ANSWERS) and row[_ANSWERS[0]] == row[_ANSWERS[1]]:
        yield Flaw(
            "both answers are the same",
            "$.non_preferred_output",
            "leave the row out",
            shown(row[_ANSWERS[1]]),
        )


def _input_flaws(given: dict[str, Any], target: Target) -> Iterator[Flaw]:
    for key in sorted(given.keys() - ROW_KEYS):
        yield Flaw(
            "extra key", f"$.input.{key}", f"input takes {', '.join(sorted(ROW_KEYS))}", shown(given[key])
        )
    messages = given.get("messages")
    if not isinstance(messages, list):
        yield wrong_type("$.input.messages", "a list of messages", messages)
        return
    for flaw in tool_flaws(given, target):
        yield flaw._replace(path=flaw.path.replace("$.", "$.input.", 1))
    yield from conversation_flaws(messages, "$.input.messages", target, tools=given.get("tools"))
    if n_images(messages):
        yield Flaw("an image", "$.input.messages", "preference tuning takes text only: leave the row out")
    if messages and isinstance(messages[-1], dict) and messages[-1].get("role") == "assistant":
        hint = "end the input before the answer that is compared"
        yield Flaw("the input ends with an answer", f"$.input.messages[{len(messages) - 1}]", hint)


def _answer_flaws(answer: Any, path: str, tools: Any, target: Target) -> Iterator[Flaw]:
    if not isinstance(answer, list) or len(answer) != 1 or not isinstance(answer[0], dict):
        yield Flaw("not one assistant message", path, "a list of exactly one message", shown(answer))
        return
    message = answer[0]
    if message.get("role") != "assistant":
        yield Flaw(
            "not the assistant's",
            f"{path}[0].role",
            "the role of an answer is assistant",
            shown(message.get("role")),
        )
        return
    if "weight" in message:
        yield Flaw("weight in a preference", f"{path}[0].weight", "take it out", shown(message["weight"]))
    yield from message_flaws({k: v for k, v in message.items() if k != "weight"}, f"{path}[0]", target)
    yield from schema_flaws(answer, path, tools)
