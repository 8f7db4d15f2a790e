"""A message of ours as OpenAI's chat API spells it: one for one, as far as it can say it."""

from __future__ import annotations

from typing import Any

from trajkit.formats.turns import arguments_value
from trajkit.schema import (
    FileBlock,
    Message,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from trajkit.schema.base import JsonObject


def chat_value(message: Message, *, has_objects: bool = False) -> JsonObject:
    """The chat message of a message.

    Args:
        message: Of any role. Of blocks that the API does not know nothing remains.
        has_objects: Whether arguments of tools are objects, as chat templates want them, or text.
    """
    first = message.content[0] if message.content else None
    if message.role == Role.TOOL and isinstance(first, ToolResultBlock):
        return {"role": "tool", "tool_call_id": first.id, "content": first.result}
    value: JsonObject = {"role": message.role.value, "content": _content(message)}
    if message.role == Role.TOOL:
        value["tool_call_id"] = ""
    thoughts = [block.text for block in message.content if isinstance(block, ThoughtBlock) and block.text]
    if thoughts:
        value["reasoning_content"] = "\n\n".join(thoughts)
    calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
    if calls:
        value["tool_calls"] = [_call(call, has_objects=has_objects) for call in calls]
    return value


def function_tool(tool: JsonObject) -> JsonObject:
    """A tool as the API lists it; one that is no function as it is."""
    return {"type": "function", "function": tool} if "name" in tool and "type" not in tool else tool


def _content(message: Message) -> Any:
    parts: list[JsonObject] = []
    for block in message.content:
        match block:
            case TextBlock(text=text):
                parts.append({"type": "text", "text": text})
            case ToolResultBlock(result=text):
                parts.append({"type": "text", "text": text})  # among what the user says
            case FileBlock(source_url=str(url), mime_type=str(kind)) if kind.startswith("image/"):
                image: JsonObject = {"url": url}
                if block.detail is not None:
                    image["detail"] = block.detail
                parts.append({"type": "image_url", "image_url": image})
    if not parts:
        return None
    is_text = len(parts) == 1 and parts[0]["type"] == "text"
    return parts[0]["text"] if is_text else parts


def _call(call: ToolCallBlock, *, has_objects: bool) -> JsonObject:
    value = arguments_value(call.arguments) if has_objects else None
    arguments = value if isinstance(value, dict) else call.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
