"""A list of chat messages as a conversation of ours; the places of what is no message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from trajkit.formats.atif_parts import compact
from trajkit.formats.chat_dialects import Respeller
from trajkit.formats.chat_message import learn_names, message_of, read_tools, unlike_a_message
from trajkit.formats.document import BadDocument, shown
from trajkit.schema import Message
from trajkit.schema.base import JsonObject


def conversation_of(sent: Any, where: str = "messages") -> list[Message]:
    """The messages of a conversation.

    Args:
        sent: A list of messages as OpenAI's chat API, or a Hugging Face dataset, spells them.
        where: Its place in the document.

    Raises:
        BadDocument: It is none.
    """
    if not isinstance(sent, list):
        raise BadDocument("not a list", where, shown(sent))
    names: dict[str, str] = {}
    respeller = Respeller()
    messages: list[Message] = []
    for position, one in enumerate(sent):
        if (wrong := unlike_a_message(one)) is not None:
            raise BadDocument("no chat message", f"{where}.{position}", wrong)
        for each in respeller.messages(one, f"{where}.{position}"):
            try:
                messages.append(message_of(_spelled(each), names))
            except ValueError as error:
                raise BadDocument("no chat message", f"{where}.{position}", shown(str(error))) from error
            learn_names(names, messages[-1])
    return messages


def weights_of(sent: Sequence[dict[str, Any]], where: str = "messages") -> list[dict[str, Any]]:
    """What the weights of the assistant's messages say of each step; 0 is context only.

    Raises:
        BadDocument: One is no finite number of at least 0.
    """
    return [
        _weight(one, f"{where}.{position}") for position, one in enumerate(sent) if one["role"] == "assistant"
    ]


def _weight(message: dict[str, Any], where: str) -> dict[str, Any]:
    name = next((name for name in ("weight", "loss_weight", "train") if message.get(name) is not None), "")
    weight = message.get(name, 1)
    is_number = isinstance(weight, int | float) and isinstance(weight, bool) == (name == "train")
    if not is_number or not 0 <= weight < float("inf"):
        raise BadDocument("no weight", f"{where}.{name}", shown(weight))
    reason = None if weight else f"{name} {'false' if name == 'train' else 0} in the file"
    return {"loss_weight": float(weight), "mask_reason": reason}


def tools_of(tools: Any, where: str = "tools") -> tuple[JsonObject, ...] | None:
    """The tools of a conversation: a list, or (Hugging Face datasets) the JSON text of one.

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
    """A tool of Anthropic's as a function: its parameters have another name."""
    if not isinstance(tool, dict) or "input_schema" not in tool or "type" in tool:
        return tool
    rest = {name: value for name, value in tool.items() if name != "input_schema"}
    return {**rest, "parameters": tool["input_schema"]}


def _spelled(one: dict[str, Any]) -> dict[str, Any]:
    """A message whose arguments of tools are text, and that says nothing of the mask, which is the step's."""
    plain = {name: value for name, value in one.items() if name not in ("weight", "loss_weight", "train")}
    calls = one.get("tool_calls")
    if not calls:
        return plain
    return {**plain, "tool_calls": [_spelled_call(call) for call in calls]}


def _spelled_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or isinstance(function.get("arguments"), str | None):
        return call
    return {**call, "function": {**function, "arguments": compact(function["arguments"])}}
