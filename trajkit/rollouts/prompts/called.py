"""Read the action that a model names by calling a tool."""

from __future__ import annotations

import json

from pydantic import JsonValue

from trajkit.schema import Message, ToolCallBlock


def called_action(answer: Message) -> JsonValue:
    """Return the argument `action` of the first tool call; None when there is none.

    If the tool has a single argument with another name, return that argument.
    """
    for block in answer.content:
        if isinstance(block, ToolCallBlock):
            try:
                arguments = json.loads(block.arguments)
            except ValueError:
                return None
            if not isinstance(arguments, dict):
                return None
            if "action" not in arguments and len(arguments) == 1:
                return _only(arguments)
            action: JsonValue = arguments.get("action")
            return action
    return None


def _only(arguments: dict[str, JsonValue]) -> JsonValue:
    (value,) = arguments.values()
    return value
