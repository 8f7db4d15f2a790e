"""Read messages and tools in the spelling of OpenAI's chat API. This is their only reader.

Content without a type of its own is kept verbatim in an `UnknownBlock`. `message_of` accepts anything;
`read_messages`, for users who build requests, refuses what the API does not support.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter

from trajkit.formats.chat.parts import content_blocks, rest_of, text_of, tool_of, unknown
from trajkit.formats.reading.document import shown
from trajkit.schema import (
    Block,
    Message,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from trajkit.schema.base import JsonObject

_ROLES = {role.value: role for role in Role} | {"developer": Role.SYSTEM, "function": Role.TOOL}
_THOUGHTS = ("reasoning_content", "reasoning")
"""Fields in which servers put the reasoning of a model, the most common first."""
_KNOWN = frozenset(
    {"role", "content", "tool_calls", "refusal", "function_call", "reasoning_details", "parsed", *_THOUGHTS}
)
_OBJECTS: TypeAdapter[tuple[JsonObject, ...]] = TypeAdapter(tuple[JsonObject, ...])


def message_of(sent: Any, names: Mapping[str, str]) -> Message:
    """Return a message in whatever form it was sent.

    Args:
        sent: The JSON object.
        names: Names of the tools called before, by call id.

    Raises:
        ValueError: A text has half of a surrogate pair.
    """
    role = _ROLES.get(str(sent.get("role"))) if isinstance(sent, dict) else None
    if role is None:
        return Message(role=Role.USER, content=(unknown(sent),))
    if role == Role.TOOL:
        return Message(role=role, content=tuple(_result_blocks(sent, names)))
    blocks: list[Block] = [*_thoughts(sent), *content_blocks(sent.get("content"))]
    if sent.get("refusal") is not None:
        blocks.append(unknown({"type": "refusal", "refusal": sent["refusal"]}))
    for call in sent.get("tool_calls") or ():
        blocks.extend(_call_blocks(call))
    if isinstance(old := sent.get("function_call"), dict):
        blocks.append(
            ToolCallBlock(id="", name=text_of(old.get("name")), arguments=text_of(old.get("arguments")))
        )
    if rest := rest_of(sent, _KNOWN):
        blocks.append(unknown(rest))
    return Message(role=role, content=tuple(blocks))


def learn_names(names: dict[str, str], message: Message) -> None:
    """Add the names of called tools by call id, because results do not have them."""
    for block in message.content:
        if isinstance(block, ToolCallBlock):
            names[block.id] = block.name


def plain_messages(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """Return messages as JSON objects; answers of the `openai` package are converted.

    Raises:
        ValueError: A message is neither.
    """
    plain = []
    for position, message in enumerate(messages):
        value = message.model_dump(exclude_none=True) if isinstance(message, BaseModel) else message
        if not isinstance(value, Mapping) or not isinstance(value.get("role"), str):
            raise ValueError(f"messages.{position} is not a message with a role: {type(message).__name__}")
        plain.append(dict(value))
    return plain


def read_messages(messages: Iterable[Any]) -> tuple[Message, ...]:
    """Return the messages of a request.

    Raises:
        ValueError: A message has a role or a content that the API does not support.
    """
    names: dict[str, str] = {}
    read = []
    for position, message in enumerate(messages):
        try:
            read.append(read_message(message, names))
        except ValueError as error:
            raise ValueError(f"messages.{position} is not a chat message: {error}") from error
    return tuple(read)


def read_message(message: Any, names: dict[str, str] | None = None) -> Message:
    """Return one message.

    Args:
        message: As the API spells it.
        names: Names of the tools called so far by call id, because results do not have them; is extended.

    Raises:
        ValueError: The role is unknown, or a value is not of the API's type.
    """
    names = {} if names is None else names
    if (wrong := unlike_a_message(message)) is not None:
        raise ValueError(wrong)
    read = message_of(message, names)
    learn_names(names, read)
    return read


def unlike_a_message(message: Any) -> str | None:
    """Return what is wrong with a message of the API; None if it is valid."""
    if not isinstance(message, dict):
        return f"not an object: {shown(message)}"
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or role not in _ROLES:
        return f"no role {shown(role)}" if "role" in message else "no role"
    if not isinstance(content, str | list | None):
        return f"content is neither text nor parts: {shown(content)}"
    for position, part in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(part, str) and not (isinstance(part, dict) and isinstance(part.get("type"), str)):
            return f"content.{position} is not a part: {shown(part)}"
    calls = message.get("tool_calls")
    if not isinstance(calls, list | tuple | None):
        return f"tool_calls is not a list: {shown(calls)}"
    for position, call in enumerate(calls or ()):
        inner = _called(call)
        if inner is None or not isinstance(inner.get("name"), str):
            return f"tool_calls.{position} names no function: {shown(call)}"
    return None


def read_tools(tools: Iterable[Any] | None) -> tuple[JsonObject, ...] | None:
    """Return the tools of a request as `{name, description, parameters, strict}`; None without any.

    Raises:
        ValueError: A tool is not JSON.
    """
    return _OBJECTS.validate_python([tool_of(tool) for tool in tools or ()]) or None


def _called(call: Any) -> dict[str, Any] | None:
    """Return the object with the name of the called tool."""
    if not isinstance(call, dict):
        return None
    inner = call.get("custom" if call.get("type") == "custom" else "function")
    return inner if isinstance(inner, dict) else None


def _thoughts(sent: dict[str, Any]) -> list[Block]:
    texts = [sent[name] for name in _THOUGHTS if isinstance(sent.get(name), str) and sent[name]]
    details = sent.get("reasoning_details")
    if not texts and not details:
        return []
    return [ThoughtBlock(text=texts[0] if texts else None, extra_data=details or None)]


def _call_blocks(call: Any) -> list[Block]:
    inner = _called(call)
    if inner is None:
        return [unknown(call)]
    is_custom = call.get("type") == "custom"
    arguments = inner.get("input" if is_custom else "arguments")
    rest = rest_of(call, ("id", "type", "index", "custom" if is_custom else "function"))
    rest |= rest_of(inner, ("name", "input") if is_custom else ("name", "arguments", "parsed_arguments"))
    if is_custom:  # its input is text, not JSON
        rest["type"] = "custom"
    blocks: list[Block] = [
        ToolCallBlock(
            id=text_of(call.get("id")), name=text_of(inner.get("name")), arguments=text_of(arguments)
        )
    ]
    if rest:
        blocks.append(unknown({"tool_call_id": call.get("id"), **rest}))
    return blocks


def _result_blocks(sent: dict[str, Any], names: Mapping[str, str]) -> list[Block]:
    call_id = text_of(sent.get("tool_call_id"))
    name = sent.get("name") if isinstance(sent.get("name"), str) else names.get(call_id)
    inner = content_blocks(sent.get("content"))
    text = "".join(block.text for block in inner if isinstance(block, TextBlock))
    blocks: list[Block] = [ToolResultBlock(id=call_id, name=name or "", result=text)]
    blocks += [block for block in inner if not isinstance(block, TextBlock)]
    if rest := rest_of(sent, ("role", "content", "tool_call_id", "name")):
        blocks.append(unknown(rest))
    return blocks
