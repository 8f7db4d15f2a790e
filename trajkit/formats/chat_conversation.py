"""A list of chat messages as a conversation of ours; the places of what is no message."""

from __future__ import annotations

from typing import Any

from trajkit.formats.atif_parts import compact
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
    messages = []
    for position, one in enumerate(sent):
        if (wrong := unlike_a_message(one)) is not None:
            raise BadDocument("no chat message", f"{where}.{position}", wrong)
        try:
            messages.append(message_of(_spelled(one), names))
        except ValueError as error:
            raise BadDocument("no chat message", f"{where}.{position}", shown(str(error))) from error
        learn_names(names, messages[-1])
    return messages


def tools_of(tools: Any, where: str = "tools") -> tuple[JsonObject, ...] | None:
    """The tools of a conversation: a list, or (Hugging Face datasets) the JSON text of one.

    Raises:
        BadDocument: They are neither.
    """
    if not isinstance(tools, list | None):
        raise BadDocument("not a list", where, shown(tools))
    try:
        return read_tools(tools)
    except ValueError as error:
        raise BadDocument("a tool is not JSON", where, shown(str(error))) from error


def _spelled(one: dict[str, Any]) -> dict[str, Any]:
    """A message whose arguments of tools are text, and that says nothing of the mask, which is the step's."""
    plain = {name: value for name, value in one.items() if name not in ("weight", "train")}
    calls = one.get("tool_calls")
    if not calls:
        return plain
    return {**plain, "tool_calls": [_spelled_call(call) for call in calls]}


def _spelled_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or isinstance(function.get("arguments"), str | None):
        return call
    return {**call, "function": {**function, "arguments": compact(function["arguments"])}}
