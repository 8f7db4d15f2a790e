"""Items of the Agent Data Protocol as messages: which belong together, and what each says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trajkit.formats.atif_parts import compact, refuse_outside
from trajkit.formats.document import BadDocument, object_at, shown, text_at
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

CALLS = ("api_action", "code_action")
_ACTIONS = (*CALLS, "message_action")
_OBSERVATIONS = ("text_observation", "image_observation", "web_observation")
_SOURCES = {"system": Role.SYSTEM, "assistant": Role.ASSISTANT}


def sizes_of(items: Sequence[dict[str, Any]]) -> list[int]:
    """How many items belong to each message, read without further word: calls in a row are one."""
    sizes: list[int] = []
    before = ""
    for item in items:
        kind = str(item.get("class_"))
        if kind in CALLS and before in CALLS:
            sizes[-1] += 1
        else:
            sizes.append(1)
        before = kind
    return sizes


def read_items(items: Sequence[dict[str, Any]], sizes: Any) -> tuple[list[Message], list[float | None]]:
    """The messages of a trajectory, and the reward that is said of each.

    Args:
        items: Actions and observations.
        sizes: How many of them belong to each message; None for the usual.

    Raises:
        BadDocument: An item is none of the protocol.
    """
    known = sizes_of(items) if sizes is None else sizes
    if not isinstance(known, list) or not all(isinstance(n, int) and n >= 0 for n in known):
        raise BadDocument("no list of sizes", "details.trajkit.sizes", shown(known))
    if sum(known) != len(items):
        raise BadDocument(
            f"the sizes are not those of {len(items)} items", "details.trajkit.sizes", shown(known)
        )
    names: dict[str, str] = {}
    messages: list[Message] = []
    rewards: list[float | None] = []
    at = 0
    for size in known:
        group = items[at : at + size]
        messages.append(_message(group, at, names))
        rewards.append(_reward(group, at))
        if group and group[0].get("class_") in _OBSERVATIONS:
            _pass_back(messages, rewards)
        at += size
    return messages, rewards


def _pass_back(messages: Sequence[Message], rewards: list[float | None]) -> None:
    """A reward that is said of an observation is that of the action before it."""
    reward, rewards[-1] = rewards[-1], None
    if reward is None:
        return
    for position in reversed(range(len(messages) - 1)):
        if messages[position].role == Role.ASSISTANT:
            rewards[position] = (rewards[position] or 0.0) + reward
            return


def _reward(group: Sequence[dict[str, Any]], at: int) -> float | None:
    said = [item["reward"] for item in group if item.get("reward") is not None]
    for reward in said:
        if not isinstance(reward, int | float) or isinstance(reward, bool):
            raise BadDocument("no number", f"content.{at}.reward", shown(reward))
    return float(sum(said)) if said else None


def _message(group: Sequence[dict[str, Any]], at: int, names: dict[str, str]) -> Message:
    if not group:
        return Message(role=Role.USER, content=())
    kind = group[0].get("class_")
    where = f"content.{at}"
    try:
        if kind in _ACTIONS:
            return Message(role=Role.ASSISTANT, content=tuple(_said(group, where, names)))
        if kind in _OBSERVATIONS:
            return _seen(group, where, names)
    except ValueError as error:
        raise BadDocument("not text", where, shown(str(error))) from error
    raise BadDocument("no class of the protocol", f"{where}.class_", shown(kind))


def _said(group: Sequence[dict[str, Any]], where: str, names: dict[str, str]) -> list[Block]:
    blocks: list[Block] = []
    first = group[0]
    if thought := first.get("reasoning_content"):
        blocks.append(ThoughtBlock(text=text_at(thought, f"{where}.reasoning_content")))
    if first["class_"] == "message_action":
        content = text_at(first.get("content"), f"{where}.content")
        return [*blocks, TextBlock(text=content)] if content else blocks
    if description := first.get("description"):
        blocks.append(TextBlock(text=text_at(description, f"{where}.description")))
    for item in group:
        if item["class_"] in CALLS:
            blocks.append(_call(item, where, names))
    return blocks


def _call(item: dict[str, Any], where: str, names: dict[str, str]) -> ToolCallBlock:
    if item["class_"] == "code_action":
        name = text_at(item.get("language"), f"{where}.language")
        arguments = compact({"code": text_at(item.get("content"), f"{where}.content")})
    else:
        name = text_at(item.get("function"), f"{where}.function")
        arguments = compact(object_at(item.get("kwargs"), f"{where}.kwargs"))
    call_id = text_at(item.get("tool_call_id") or "", f"{where}.tool_call_id")
    names[call_id] = name
    return ToolCallBlock(id=call_id, name=name, arguments=arguments)


def _seen(group: Sequence[dict[str, Any]], where: str, names: dict[str, str]) -> Message:
    first = group[0]
    call_id = first.get("tool_call_id")
    if call_id is not None:
        if not isinstance(call_id, str) or call_id not in names:
            raise BadDocument("a tool result without its call", f"{where}.tool_call_id", shown(call_id))
        inner = [block for item in group for block in _parts(item, where)]
        text = "".join(block.text for block in inner if isinstance(block, TextBlock))
        result = ToolResultBlock(id=call_id, name=names[call_id], result=text)
        others = [block for block in inner if not isinstance(block, TextBlock)]
        return Message(role=Role.TOOL, content=(result, *others))
    is_system = first.get("name") == "system" and first.get("source") == "environment"
    role = Role.SYSTEM if is_system else _SOURCES.get(str(first.get("source")), Role.USER)
    return Message(role=role, content=tuple(block for item in group for block in _parts(item, where)))


def _parts(item: dict[str, Any], where: str) -> list[Block]:
    match item.get("class_"):
        case "text_observation":
            content = text_at(item.get("content"), f"{where}.content")
            return [TextBlock(text=content)] if content else []
        case "image_observation":
            path = text_at(item.get("content"), f"{where}.content")
            refuse_outside(path, f"{where}.content")
            return [FileBlock(source_url=path, mime_type="image/*")]
        case "web_observation":
            text = item.get("axtree") or item.get("html") or item.get("url") or ""
            rest = {name: value for name, value in item.items() if value is not None and value != text}
            return [TextBlock(text=text_at(text, where)), UnknownBlock(data=rest)]
        case other:
            raise BadDocument("no observation", f"{where}.class_", shown(other))
