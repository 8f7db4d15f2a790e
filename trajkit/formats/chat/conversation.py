"""Read chat messages of three dialects as a conversation, and write a message as a chat message.

Anthropic: a call is a block `tool_use` of the assistant, its result a block `tool_result` of the user.
LLaMA-Factory v1: every part is `{type, value}`, a call is a part `tool_call` with JSON. It has no ids, so
they are generated, and a result answers the oldest waiting call.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from trajkit.formats.chat.message import learn_names, message_of, read_tools, unlike_a_message
from trajkit.formats.chat.turns import arguments_value
from trajkit.formats.reading.atif_parts import compact
from trajkit.formats.reading.document import BadDocument, shown
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

_ANTHROPIC = ("tool_use", "tool_result", "thinking")
_CALLS = ("tool_call", "tool_calls")


def conversation_of(sent: Any, where: str = "messages") -> list[Message]:
    """Return the messages of a conversation.

    Args:
        sent: A list of messages in the spelling of OpenAI's chat API, or of a Hugging Face dataset.
        where: Its place in the document.

    Raises:
        BadDocument: It is not a conversation.
    """
    if not isinstance(sent, list):
        raise BadDocument("not a list", where, shown(sent))
    names: dict[str, str] = {}
    respeller = Respeller()
    messages: list[Message] = []
    for position, one in enumerate(sent):
        if (wrong := unlike_a_message(one)) is not None:
            raise BadDocument("not a chat message", f"{where}.{position}", wrong)
        for each in respeller.messages(one, f"{where}.{position}"):
            try:
                messages.append(message_of(_spelled(each), names))
            except ValueError as error:
                raise BadDocument("not a chat message", f"{where}.{position}", shown(str(error))) from error
            learn_names(names, messages[-1])
    return messages


def weights_of(sent: Sequence[dict[str, Any]], where: str = "messages") -> list[dict[str, Any]]:
    """Return loss weight and mask reason of each assistant message; a weight of 0 is context only.

    Raises:
        BadDocument: A weight is not a finite number of at least 0.
    """
    return [
        _weight(one, f"{where}.{position}") for position, one in enumerate(sent) if one["role"] == "assistant"
    ]


def _weight(message: dict[str, Any], where: str) -> dict[str, Any]:
    name = next((name for name in ("weight", "loss_weight", "train") if message.get(name) is not None), "")
    weight = message.get(name, 1)
    is_number = isinstance(weight, int | float) and isinstance(weight, bool) == (name == "train")
    if not is_number or not 0 <= weight < float("inf"):
        raise BadDocument("not a weight", f"{where}.{name}", shown(weight))
    reason = None if weight else f"{name} {'false' if name == 'train' else 0} in the file"
    return {"loss_weight": float(weight), "mask_reason": reason}


def tools_of(tools: Any, where: str = "tools") -> tuple[JsonObject, ...] | None:
    """Return the tools of a conversation: a list, or (Hugging Face datasets) the JSON text of one.

    Raises:
        BadDocument: They are neither.
    """
    if isinstance(tools, str):
        try:
            tools = json.loads(tools) if tools.strip() else None
        except (ValueError, RecursionError):
            raise BadDocument("tools that are not JSON", where, shown(tools)) from None
    if not isinstance(tools, list | None):
        raise BadDocument("not a list", where, shown(tools))
    try:
        return read_tools([_parameters(tool) for tool in tools or ()])
    except ValueError as error:
        raise BadDocument("a tool is not JSON", where, shown(str(error))) from error


def _parameters(tool: Any) -> Any:
    """Return a tool of Anthropic's as a function: its parameters have another name."""
    if not isinstance(tool, dict) or "input_schema" not in tool or "type" in tool:
        return tool
    rest = {name: value for name, value in tool.items() if name != "input_schema"}
    return {**rest, "parameters": tool["input_schema"]}


def _spelled(one: dict[str, Any]) -> dict[str, Any]:
    """Return a message with tool arguments as text, and without the weight, which is the step's."""
    plain = {name: value for name, value in one.items() if name not in ("weight", "loss_weight", "train")}
    if calls := one.get("tool_calls"):
        plain["tool_calls"] = [_spelled_call(call) for call in calls]
    return plain


def _spelled_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or isinstance(function.get("arguments"), str | None):
        return call
    return {**call, "function": {**function, "arguments": compact(function["arguments"])}}


class Respeller:
    """Rewrites the messages of a conversation; generated ids connect calls with their results."""

    def __init__(self) -> None:
        self._n_calls = 0
        self._waiting: list[str] = []

    def messages(self, sent: dict[str, Any], where: str) -> list[dict[str, Any]]:
        """Return a message as one or more of OpenAI's; the same object if it is one already.

        Raises:
            BadDocument: A part does not fit its type.
        """
        parts = sent.get("content")
        if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
            return [sent]
        if any(part.get("type") in _ANTHROPIC or isinstance(part.get("source"), dict) for part in parts):
            return self._of_anthropic(sent, parts, where)
        if parts and all(isinstance(part.get("value"), str) for part in parts):
            return self._of_llama_factory(sent, parts, where)
        return [sent]

    def _of_anthropic(
        self, sent: dict[str, Any], parts: list[dict[str, Any]], where: str
    ) -> list[dict[str, Any]]:
        content: list[Any] = []
        calls: list[Any] = []
        results: list[Any] = []
        own = dict(sent)
        for position, part in enumerate(parts):
            at = f"{where}.content.{position}"
            match part.get("type"):
                case "tool_use":
                    calls.append(_call(part.get("id"), part.get("name"), part.get("input"), at))
                case "tool_result":
                    inner = part.get("content")
                    inner = [_source(one) for one in inner] if isinstance(inner, list) else inner
                    rest = {"is_error": True} if part.get("is_error") else {}
                    call_id = part.get("tool_use_id")
                    results.append({"role": "tool", "tool_call_id": call_id, "content": inner, **rest})
                case "thinking" if isinstance(part.get("thinking"), str):
                    own["reasoning_content"] = own.get("reasoning_content", "") + part["thinking"]
                case _:
                    content.append(_source(part))
        own["content"] = content
        if calls:
            own["tool_calls"] = calls
        return [*results, own] if content or calls or own.get("reasoning_content") else results

    def _of_llama_factory(
        self, sent: dict[str, Any], parts: list[dict[str, Any]], where: str
    ) -> list[dict[str, Any]]:
        own = {**sent, "content": []}
        calls: list[Any] = []
        for position, part in enumerate(parts):
            at, value = f"{where}.content.{position}", part["value"]
            match part.get("type"):
                case "text":
                    own["content"].append({"type": "text", "text": value})
                case "reasoning":
                    own["reasoning_content"] = own.get("reasoning_content", "") + value
                case "image_url":
                    own["content"].append({"type": "image_url", "image_url": {"url": value}})
                case "tools":
                    pass  # see `tools_among`
                case kind if kind in _CALLS:
                    for call in _json(value, at):
                        self._n_calls += 1
                        self._waiting.append(f"call_{self._n_calls}")
                        name, given = call.get("name"), call.get("arguments", call.get("parameters"))
                        calls.append(_call(self._waiting[-1], name, given, at))
                case _:
                    own["content"].append(part)
        if calls:
            own["tool_calls"] = calls
        if own.get("role") == "tool" and "tool_call_id" not in own:
            if not self._waiting:
                raise BadDocument("a tool result without its call", where)
            own["tool_call_id"] = self._waiting.pop(0)
        return [own]


def tools_among(messages: list[dict[str, Any]]) -> str | None:
    """Return the tools that LLaMA-Factory declares as a part of a message; None without any."""
    contents = [one["content"] for one in messages if isinstance(one.get("content"), list)]
    parts = [part for content in contents for part in content if isinstance(part, dict)]
    return next((part["value"] for part in parts if part.get("type") == "tools" and "value" in part), None)


def _call(call_id: Any, name: Any, given: Any, where: str) -> dict[str, Any]:
    if not isinstance(name, str):
        raise BadDocument("a call that names no tool", where, shown(name))
    arguments = given if isinstance(given, str) else compact({} if given is None else given)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _source(part: Any) -> Any:
    """Return an image of Anthropic's as a part of OpenAI's."""
    source = part.get("source") if isinstance(part, dict) and part.get("type") == "image" else None
    if not isinstance(source, dict):
        return part
    url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data') or ''}"
    return {"type": "image_url", "image_url": {"url": url}}


def _json(text: str, where: str) -> list[dict[str, Any]]:
    """Parse calls from JSON: an object, or a list of objects."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise BadDocument("a call that is not JSON", where, shown(text)) from None
    calls = value if isinstance(value, list) else [value]
    if not all(isinstance(call, dict) for call in calls):
        raise BadDocument("a call that is not an object", where, shown(text))
    return calls


def chat_value(message: Message, *, has_objects: bool = False) -> JsonObject:
    """Return a message as a chat message.

    Args:
        message: Of any role. Blocks that the API does not support are left out.
        has_objects: Whether arguments of tools are objects, as chat templates need them, or text.
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
        value["tool_calls"] = [_written_call(call, has_objects=has_objects) for call in calls]
    return value


def function_tool(tool: JsonObject) -> JsonObject:
    """Return a tool as the API lists it; one that is not a function unchanged."""
    return {"type": "function", "function": tool} if "name" in tool and "type" not in tool else tool


def _content(message: Message) -> Any:
    parts: list[JsonObject] = []
    for block in message.content:
        match block:
            case TextBlock(text=text):
                parts.append({"type": "text", "text": text})
            case ToolResultBlock(result=text):
                parts.append({"type": "text", "text": text})  # in a message that is not a tool's
            case FileBlock(source_url=str(url), mime_type=str(kind)) if kind.startswith("image/"):
                image: JsonObject = {"url": url}
                if block.detail is not None:
                    image["detail"] = block.detail
                parts.append({"type": "image_url", "image_url": image})
    if not parts:
        return None
    is_text = len(parts) == 1 and parts[0]["type"] == "text"
    return parts[0]["text"] if is_text else parts


def _written_call(call: ToolCallBlock, *, has_objects: bool) -> JsonObject:
    value = arguments_value(call.arguments) if has_objects else None
    arguments = value if isinstance(value, dict) else call.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
