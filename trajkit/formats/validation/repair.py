"""Repair rows of a training file where that is safe, and count what was changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from trajkit.formats.chat.openai_rules import ROW_KEYS
from trajkit.formats.validation.shape import PREFERENCE_KEYS
from trajkit.formats.validation.target import Shape, Target


def repaired(row: dict[str, Any], shape: Shape | None, target: Target, done: Counter[str]) -> dict[str, Any]:
    """Return the row with safe repairs.

    Args:
        row: Changed in place.
        shape: Its kind; a row of unknown kind (None) is not changed.
        target: The target of the file.
        done: Counts the repairs.
    """
    known = {
        Shape.CHAT: ROW_KEYS | ({"weight"} if target.has_row_weights else set()),
        Shape.PREFERENCE: PREFERENCE_KEYS,
    }
    if shape in known and not target.takes_extra_keys:
        for key in sorted(row.keys() - known[shape]):
            del row[key]
            done[f"extra key {key!r} taken out"] += 1
    for message in _messages(row):
        _repair_weight(message, done)
        if message.get("tool_calls") == []:
            del message["tool_calls"]
            done["empty tool_calls taken out"] += 1
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict) and isinstance(call.get("function"), dict):
                _repair_arguments(call["function"], target, done)
    return row


def _messages(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all messages of a row, in whichever keys its kind has them."""
    if isinstance(value, dict):
        for name in (
            "messages",
            "input",
            "preferred_output",
            "non_preferred_output",
            "prompt",
            "completion",
            "chosen",
            "rejected",
        ):
            found = value.get(name)
            if isinstance(found, list):
                yield from (item for item in found if isinstance(item, dict))
            elif name == "input":
                yield from _messages(found)


def _repair_weight(message: dict[str, Any], done: Counter[str]) -> None:
    if "weight" not in message:
        return
    if message.get("role") != "assistant":
        del message["weight"]
        done["weight of another than the assistant taken out"] += 1
    elif message["weight"] in (0, 1) and type(message["weight"]) is not int:
        message["weight"] = int(message["weight"])
        done["weight written as 0 or 1"] += 1


def _repair_arguments(function: dict[str, Any], target: Target, done: Counter[str]) -> None:
    arguments = function.get("arguments")
    if target.arguments == "text" and isinstance(arguments, dict):
        function["arguments"] = json.dumps(arguments, ensure_ascii=False)
        done["arguments written as a text"] += 1
    elif target.arguments == "object" and isinstance(arguments, str):
        try:
            found = json.loads(arguments)
        except ValueError:
            return
        if isinstance(found, dict):
            function["arguments"] = found
            done["arguments written as an object"] += 1
