"""Messages as items of the Agent Data Protocol: ids once, and an observation for every call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trajkit.formats.atif_parts import is_outside
from trajkit.formats.turns import Turns, answers_at, arguments_value
from trajkit.schema import (
    Episode,
    FileBlock,
    Message,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from trajkit.schema.base import JsonObject


def items_of(episode: Episode, turns: Turns) -> tuple[list[JsonObject], list[int]]:
    """The items of an episode, and how many each of its messages became."""
    rewards = {
        position: step.reward
        for position, step in zip(answers_at(turns.cuts), episode.steps, strict=True)
        if position is not None and step.reward is not None
    }
    writer = _Writer(turns.messages)
    groups = []
    for position, message in enumerate(turns.messages):
        group = writer.group(message, position)
        if group and position in rewards:
            group[0]["reward"] = rewards[position]
        groups.append(group)
    return [item for group in groups for item in group], [len(group) for group in groups]


class _Writer:
    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._taken: set[str] = set()
        self._open: dict[str, str] = {}
        """Ids as written of the calls whose results are still to come, by our ids."""

    def group(self, message: Message, position: int) -> list[dict[str, Any]]:
        """The items of a message."""
        if message.role == Role.ASSISTANT:
            return self._said(message, position)
        items: list[JsonObject] = []
        for block in message.content:
            match block:
                case TextBlock(text=text):
                    items.append(_text(text, message.role))
                case ToolResultBlock(id=call_id, result=text) if (
                    call_id in self._open and message.role == Role.TOOL
                ):
                    written = self._open.pop(call_id)
                    items.append({**_text(text, message.role), "tool_call_id": written})
                case ToolResultBlock(result=text):
                    items.append(_text(text, message.role))
                case FileBlock(source_url=str(path), mime_type=str(kind)) if kind.startswith(
                    "image/"
                ) and not is_outside(path):
                    source = "user" if message.role == Role.USER else "environment"
                    items.append({"class_": "image_observation", "content": path, "source": source})
        return items

    def _said(self, message: Message, position: int) -> list[dict[str, Any]]:
        text = "\n".join(block.text for block in message.content if isinstance(block, TextBlock))
        thoughts = [block.text for block in message.content if isinstance(block, ThoughtBlock) and block.text]
        calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
        items: list[JsonObject] = [self._call(call) for call in calls]
        if not items:
            items = [{"class_": "message_action", "content": text}]
        elif text:
            items[0]["description"] = text
        if thoughts:
            items[0]["reasoning_content"] = "\n\n".join(thoughts)
        answered = self._answered(position)
        for call in calls:
            # the protocol wants an observation for every call
            if call.id not in answered and (written := self._open.pop(call.id, None)) is not None:
                items.append({**_text("", Role.TOOL), "tool_call_id": written})
        return items

    def _call(self, call: ToolCallBlock) -> JsonObject:
        written, number = call.id or "call", 1
        while written in self._taken:
            number += 1
            written = f"{call.id or 'call'}-{number}"
        self._taken.add(written)
        arguments = arguments_value(call.arguments)
        item: JsonObject = {
            "class_": "api_action",
            "tool_call_id": written,
            "function": call.name,
            "kwargs": arguments if isinstance(arguments, dict) else {},
        }
        if call.id not in self._open:
            self._open[call.id] = written
        return item

    def _answered(self, position: int) -> set[str]:
        """The calls whose results are the messages right after this one."""
        found: set[str] = set()
        for message in self._messages[position + 1 :]:
            if message.role != Role.TOOL:
                break
            found.update(block.id for block in message.content if isinstance(block, ToolResultBlock))
        return found


def _text(text: str, role: Role) -> JsonObject:
    item: JsonObject = {"class_": "text_observation", "content": text, "source": "environment"}
    if role == Role.USER:
        item["source"] = "user"
    elif role == Role.SYSTEM:
        item["name"] = "system"
    return item
