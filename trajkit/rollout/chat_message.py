"""Messages and tools as OpenAI's chat API spells them, read as ours; what has no type is kept as it came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, JsonValue, TypeAdapter

from trajkit.schema import (
    Block,
    FileBlock,
    Message,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
)
from trajkit.schema.base import JsonObject

_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
_THOUGHTS = ("reasoning_content", "reasoning")
"""Where servers put the reasoning of a model, the usual name first."""

_OBJECTS: TypeAdapter[tuple[JsonObject, ...]] = TypeAdapter(tuple[JsonObject, ...])


def plain_messages(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """Messages as JSON objects; an answer of the `openai` package may stand among them as it came.

    Raises:
        ValueError: One of them is neither.
    """
    plain = []
    for position, message in enumerate(messages):
        value = message.model_dump(exclude_none=True) if isinstance(message, BaseModel) else message
        if not isinstance(value, Mapping) or not isinstance(value.get("role"), str):
            raise ValueError(f"messages.{position} is no message with a role: {type(message).__name__}")
        plain.append(dict(value))
    return plain


def read_messages(messages: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Messages of a request, as ours.

    Raises:
        ValueError: A message has a role or a content that the API does not know.
    """
    tool_names: dict[str, str] = {}
    read = []
    for position, message in enumerate(messages):
        try:
            read.append(read_message(message, tool_names))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"messages.{position} is no chat message: {error}") from error
    return tuple(read)


def read_message(message: Mapping[str, Any], tool_names: dict[str, str] | None = None) -> Message:
    """One message, as ours.

    Args:
        message: As the API spells it.
        tool_names: Names of the tools called so far by call id, since results do not say them; is added to.

    Raises:
        ValueError: The role is not known, or a value is not of the API's type.
    """
    names = {} if tool_names is None else tool_names
    role = _ROLES.get(message["role"])
    if role is None:
        raise ValueError(f"no role {message['role']!r}")
    if role == Role.TOOL:
        call_id = message.get("tool_call_id", "")
        name = message.get("name") or names.get(call_id, "")
        return Message(
            role=role, content=(ToolResultBlock(id=call_id, name=name, result=_text(message.get("content"))),)
        )
    calls = [_call(call) for call in message.get("tool_calls") or ()]
    names.update({call.id: call.name for call in calls})
    return Message(role=role, content=(*_thoughts(message), *_content(message), *calls))


def read_tools(tools: Iterable[Mapping[str, Any]] | None) -> tuple[JsonObject, ...] | None:
    """Tools of a request as `{name, description, parameters, strict}`; None when there are none.

    Raises:
        ValueError: A tool is not JSON.
    """
    found = [dict(tool["function"]) if tool.get("type") == "function" else dict(tool) for tool in tools or ()]
    return _OBJECTS.validate_python(found) or None


def _thoughts(message: Mapping[str, Any]) -> list[Block]:
    said = [message[name] for name in _THOUGHTS if isinstance(message.get(name), str) and message[name]]
    return [ThoughtBlock(text=said[0])] if said else []


def _content(message: Mapping[str, Any]) -> list[Block]:
    content = message.get("content")
    parts = [TextBlock(text=content)] if isinstance(content, str) else [_part(part) for part in content or ()]
    if message.get("refusal") is not None:
        return [*parts, UnknownBlock(data={"type": "refusal", "refusal": message["refusal"]})]
    return list(parts)


def _part(part: Mapping[str, Any]) -> Block:
    match part:
        case {"type": "text", "text": text}:
            return TextBlock(text=text)
        case {"type": "image_url", "image_url": {"url": str(url), **rest}}:
            return _file(url, detail=rest.get("detail"))
        case {"type": "input_audio", "input_audio": {"format": str(kind)}}:
            return FileBlock(mime_type=f"audio/{kind}")
        case {"type": "file", "file": {"file_data": str(url), **rest}}:
            return _file(url, filename=rest.get("filename"))
        case _:
            return UnknownBlock(data=_json(part))


def _file(url: str, **details: Any) -> FileBlock:
    """A file by its address; of one that was sent inline only its kind is kept."""
    if "://" in url[:32]:
        return FileBlock(source_url=url, **details)
    kind = url.removeprefix("data:").partition(",")[0].partition(";")[0] if url.startswith("data:") else ""
    return FileBlock(mime_type=kind or None, **details)


def _call(call: Mapping[str, Any]) -> ToolCallBlock:
    if call.get("type") == "custom":
        return ToolCallBlock(id=call["id"], name=call["custom"]["name"], arguments=call["custom"]["input"])
    function = call["function"]
    return ToolCallBlock(id=call["id"], name=function["name"], arguments=function["arguments"])


def _text(content: Any) -> str:
    """The text of a tool's result, which may come in parts."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or ())


def _json(value: Any) -> JsonValue:
    return TypeAdapter(JsonValue).validate_python(value)
