"""Read items of OpenAI's Responses API as messages.

There a conversation is a list of items. Consecutive items of the assistant (its reasoning, its text and the
tools that it calls) become one message, because they are one answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from trajkit.formats.chat.parts import content_blocks, rest_of, text_of, unknown
from trajkit.formats.reading.document import BadDocument, shown
from trajkit.schema import Block, Message, Role, TextBlock, ThoughtBlock, ToolCallBlock, ToolResultBlock

_ROLES = {role.value: role for role in Role} | {"developer": Role.SYSTEM}
_OF_THE_TOOLS = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        "computer_call_output",
        "local_shell_call_output",
        "shell_call_output",
        "apply_patch_call_output",
        "mcp_approval_response",
    }
)
"""Items that the caller sends as the result of a tool; all others without a role are the model's."""
_MARKS = ("id", "status", "type")


class Item(NamedTuple):
    """An item as blocks of one role."""

    role: Role
    blocks: tuple[Block, ...]


def item_of(item: Any, names: dict[str, str]) -> Item:
    """Parse an item of a request's input, or of an answer's output.

    Args:
        item: The JSON object.
        names: Names of the tools that were called before, by the id of the call.
    """
    if not isinstance(item, dict):
        return Item(Role.USER, (unknown(item),))
    kind = str(item.get("type") or "message")
    match kind:
        case "message" if (role := _ROLES.get(str(item.get("role")))) is not None:
            rest = rest_of(item, ("role", "content", *_MARKS))
            return Item(role, (*content_blocks(item.get("content")), *([unknown(rest)] if rest else ())))
        case "reasoning":
            return Item(Role.ASSISTANT, (_thought(item),))
        case "function_call":
            return Item(Role.ASSISTANT, _call(item))
        case "function_call_output":
            return Item(Role.TOOL, _result(item, names))
        case "item_reference" | "message":
            return Item(Role.USER, (unknown(item),))
        case _:
            return Item(Role.TOOL if kind in _OF_THE_TOOLS else Role.ASSISTANT, (unknown(item),))


def messages_of_items(items: Sequence[Item]) -> list[Message]:
    """Return the messages of items; consecutive ones of the assistant are one message."""
    messages: list[Message] = []
    blocks: list[Block] = []
    for item in items:
        if item.role == Role.ASSISTANT:
            blocks.extend(item.blocks)
            continue
        if blocks:
            messages.append(Message(role=Role.ASSISTANT, content=tuple(blocks)))
            blocks = []
        messages.append(Message(role=item.role, content=item.blocks))
    if blocks:
        messages.append(Message(role=Role.ASSISTANT, content=tuple(blocks)))
    return messages


def conversation_of_items(sent: Any, where: str = "input") -> list[Message]:
    """Return the messages of a request's input: a text, or a list of items.

    Raises:
        BadDocument: It is neither.
    """
    if isinstance(sent, str):
        return [Message(role=Role.USER, content=(TextBlock(text=sent),))]
    if not isinstance(sent, list):
        raise BadDocument("not a list", where, shown(sent))
    names: dict[str, str] = {}
    items = []
    for one in sent:
        items.append(item_of(one, names))
        names |= {block.id: block.name for block in items[-1].blocks if isinstance(block, ToolCallBlock)}
    return messages_of_items(items)


def _thought(item: dict[str, Any]) -> Block:
    lists = [item.get(name) or [] for name in ("content", "summary")]
    if not all(isinstance(one, list) for one in lists):
        return unknown(item)
    texts = [str(part.get("text") or "") for part in lists[0] if isinstance(part, dict)]
    rest = rest_of(item, ("content", "summary", "encrypted_content", "status", "type"))
    return ThoughtBlock(
        text="".join(texts) if texts else None,
        signature=item.get("encrypted_content"),
        summary=tuple(lists[1]) or None,
        extra_data=rest or None,
    )


def _call(item: dict[str, Any]) -> tuple[Block, ...]:
    call_id = text_of(item.get("call_id") or item.get("id"))
    name, arguments = text_of(item.get("name")), text_of(item.get("arguments"))
    call = ToolCallBlock(id=call_id, name=name, arguments=arguments)
    rest = rest_of(item, ("call_id", "name", "arguments", *_MARKS))
    return (call, unknown({"tool_call_id": call_id, **rest})) if rest else (call,)


def _result(item: dict[str, Any], names: dict[str, str]) -> tuple[Block, ...]:
    call_id = text_of(item.get("call_id"))
    inner = content_blocks(item.get("output"))
    text = "".join(block.text for block in inner if isinstance(block, TextBlock))
    name = text_of(item.get("name")) or names.get(call_id, "")
    others = tuple(block for block in inner if not isinstance(block, TextBlock))
    rest = rest_of(item, ("call_id", "output", "name", *_MARKS))
    return (
        ToolResultBlock(id=call_id, name=name, result=text),
        *others,
        *([unknown(rest)] if rest else ()),
    )
