"""The Agent Data Protocol: a trajectory is a list of actions and observations, one line of JSON each.

Version 1.3.1 is written; every version 1 is read. Values without a field of their own are in
`details.trajkit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trajkit.formats.base import Document, EpisodeFormat
from trajkit.formats.chat.conversation import function_tool, tools_of
from trajkit.formats.chat.turns import Turns, answers_at, arguments_value, plain_cuts, read_cuts, turns_of
from trajkit.formats.profile import KEY, episode_from, profile_of
from trajkit.formats.profile import VERSION as VERSION_OF_PROFILE
from trajkit.formats.reading.atif_parts import compact, is_outside, refuse_outside
from trajkit.formats.reading.document import (
    BadDocument,
    Reading,
    object_at,
    objects_at,
    of_one,
    shown,
    text_at,
)
from trajkit.schema import (
    Block,
    Episode,
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

VERSION = "1.3.1"
"""The version that is written."""
CALLS = ("api_action", "code_action")
_ACTIONS = (*CALLS, "message_action")
_OBSERVATIONS = ("text_observation", "image_observation", "web_observation")
_SOURCES = {"system": Role.SYSTEM, "assistant": Role.ASSISTANT}


def is_adp(value: Any) -> bool:
    """Whether a JSON value is a trajectory of the Agent Data Protocol."""
    content = value.get("content") if isinstance(value, dict) else None
    return (
        isinstance(content, list)
        and "id" in value
        and all(isinstance(item, dict) and "class_" in item for item in content[:3])
    )


def read_adp(value: JsonObject) -> Reading:
    """Return the episode of a trajectory.

    Raises:
        BadDocument: It is not a trajectory, or not of version 1.
    """
    version = value.get("schema_version", VERSION)
    if not str(version).startswith("1."):
        raise BadDocument("not a known version (1.x)", "schema_version", shown(version))
    details = object_at(value.get("details") or {}, "details")
    profile = details.get(KEY)
    episode = _read(value, details, profile)
    return Reading((episode,), profile is not None, bool(value.get("id")))


def write_adp(episode: Episode) -> Document:
    """Return the trajectory of an episode."""
    turns = turns_of(episode)
    items, sizes = items_of(episode, turns)
    value: dict[str, Any] = {
        "schema_version": VERSION,
        "id": episode.episode_id,
        "content": items,
        "details": {},
    }
    if tools := next((step.tools for step in episode.steps if step.tools), None):
        value["available_custom_tools"] = [str(tool["name"]) for tool in tools if "name" in tool]
        value["details"]["tools"] = [function_tool(tool) for tool in tools]
    rest = {"sizes": sizes} if sizes != sizes_of(items) else {}
    read = _read(value, value["details"], {"version": VERSION_OF_PROFILE, **rest, "cuts": turns.cuts})
    value["details"][KEY] = {**profile_of(episode, read, turns), **rest}
    return Document((value,))


ADP = EpisodeFormat(
    name="adp",
    about="the Agent Data Protocol 1.3.1: a trajectory of actions and observations per line",
    write=write_adp,
    read=of_one(read_adp),
)
"""Trajectories as the converters of the Agent Data Protocol read them."""


def _read(value: JsonObject, details: JsonObject, profile: Any) -> Episode:
    rest = None if profile is None else dict(object_at(profile, f"details.{KEY}"))
    sizes = None if rest is None else rest.pop("sizes", None)
    content = objects_at(value.get("content"), "content")
    messages, rewards = read_items(content, sizes)
    others = {name: item for name, item in details.items() if name not in (KEY, "tools")}
    fields = {
        "episode_id": value.get("id") or "unnamed",
        "source": "adp",
        "origin": {"details": others} if others else None,
    }
    episode = episode_from(fields, messages, rest)
    cuts = read_cuts((rest or {}).get("cuts"), messages) or plain_cuts(messages)
    own = (rest or {}).get("steps") or [{}] * len(episode.steps)
    tools = tools_of(details.get("tools"), "details.tools")
    steps = []
    for step, said, position in zip(episode.steps, own, answers_at(cuts), strict=True):
        update: dict[str, Any] = {}
        if position is not None and rewards[position] is not None and "reward" not in said:
            update["reward"] = rewards[position]
        if tools and "tools" not in said:
            update["tools"] = tools
        steps.append(step.model_copy(update=update) if update else step)
    return episode.model_copy(update={"steps": tuple(steps)})


def sizes_of(items: Sequence[dict[str, Any]]) -> list[int]:
    """Return the number of items of each message by the default rule: consecutive calls are one message."""
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
    """Return the messages of a trajectory, and the reward of each.

    Args:
        items: Actions and observations.
        sizes: The number of items of each message; None for the default rule.

    Raises:
        BadDocument: An item is not one of the protocol.
    """
    known = sizes_of(items) if sizes is None else sizes
    if not isinstance(known, list) or not all(isinstance(n, int) and n >= 0 for n in known):
        raise BadDocument("not a list of sizes", "details.trajkit.sizes", shown(known))
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
    """Move the reward of an observation to the action before it."""
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
            raise BadDocument("not a number", f"content.{at}.reward", shown(reward))
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
    raise BadDocument("not a class of the protocol", f"{where}.class_", shown(kind))


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
            raise BadDocument("not an observation", f"{where}.class_", shown(other))


def items_of(episode: Episode, turns: Turns) -> tuple[list[JsonObject], list[int]]:
    """Return the items of an episode, and their number for each message."""
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
        """Written ids of the calls that still wait for a result, by their original ids."""

    def group(self, message: Message, position: int) -> list[dict[str, Any]]:
        """Return the items of a message."""
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
            # the protocol requires an observation for every call
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
        """Return the ids of the calls that the messages right after this one answer."""
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
