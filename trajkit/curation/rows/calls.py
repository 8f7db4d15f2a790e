"""Complete the tool calls of a row: missing ids, and declarations of the called tools."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trajkit._core.memo import Memo
from trajkit._core.outside import json_from_outside, text_from_outside
from trajkit.errors import DataError, RequestError
from trajkit.formats.base import Problem, Row
from trajkit.formats.chat.message import read_tools
from trajkit.formats.validation.finding import Severity, json_type
from trajkit.formats.validation.shape import flaws_of
from trajkit.formats.validation.target import TARGETS
from trajkit.schema import Block, Message, Role, ToolCallBlock, ToolResultBlock
from trajkit.schema.base import JsonObject

FROM_CALLS = "from-calls"
"""The value of `--tools` that declares each tool from its calls."""


class Calls:
    """Completes rows for a target, and checks them by its rules.

    Args:
        target: Name of a target (`trajkit.formats.validation.target`); None to check nothing.
        tools: `from-calls`, or a file of tools for rows that declare none; None to leave rows as they are.

    Raises:
        RequestError: The file cannot be read, or contains no list of tools.
    """

    def __init__(self, target: str | None, tools: str | None) -> None:
        self._target = None if target is None else replace(TARGETS[target], flawless=Memo())
        self._is_from_calls = tools == FROM_CALLS
        self._given = () if tools is None or self._is_from_calls else _tools_in(Path(tools))

    @property
    def declares_tools(self) -> bool:
        """Whether rows without calls get tools, too."""
        return bool(self._given)

    def with_ids(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return the messages, with ids for all calls if the target requires them."""
        return with_ids(messages) if self._target and self._target.needs_call_ids else messages

    def with_tools(
        self, tools: tuple[JsonObject, ...], messages: Iterable[Message]
    ) -> tuple[JsonObject, ...]:
        """Return the declared tools of a row, completed by the tools that its messages call."""
        if not self._is_from_calls and not (tools and self._given):
            return tools or self._given
        declared = {tool.get("name") for tool in tools}
        blocks = (block for message in messages for block in message.content)
        called = [call for call in blocks if isinstance(call, ToolCallBlock) and call.name not in declared]
        if self._is_from_calls:
            return (*tools, *declared_by(called))
        names = {call.name for call in called}
        return (*tools, *(tool for tool in self._given if tool.get("name") in names))

    def checked(self, row: Row) -> Row:
        """Return the row with the problems that `trajkit validate` would report."""
        if row.problems or self._target is None:
            return row
        return row._replace(
            problems=tuple(
                # `$.messages[2].content` is written `messages.2.content` in problems
                Problem(
                    flaw.kind, flaw.path.removeprefix("$.").replace("[", ".").replace("]", ""), flaw.value
                )
                for flaw in flaws_of(row.value, self._target, None)
                if flaw.severity == Severity.ERROR
            )
        )


def with_ids(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages, with new ids for calls without one and for their results.

    Results without an id are matched with the calls before them in order, by the name of the tool.
    """
    blocks = [block for message in messages for block in message.content]
    known = {block.id for block in blocks if isinstance(block, ToolCallBlock | ToolResultBlock)}
    if "" not in known:
        return tuple(messages)
    free = (made for number in itertools.count(1) if (made := f"call_{number}") not in known)
    completed = []
    waiting: list[ToolCallBlock] = []
    for message in messages:
        if message.role == Role.ASSISTANT:
            waiting = []
        content = tuple(_with_id(block, free, waiting) for block in message.content)
        completed.append(message.model_copy(update={"content": content}))
    return tuple(completed)


def _with_id(block: Block, free: Iterator[str], waiting: list[ToolCallBlock]) -> Block:
    """Return the block with an id. `waiting` are the calls that got one and have no result yet."""
    if isinstance(block, ToolCallBlock) and not block.id:
        block = block.model_copy(update={"id": next(free)})
        waiting.append(block)
    elif isinstance(block, ToolResultBlock) and not block.id:
        call = next((call for call in waiting if block.name in ("", call.name)), None)
        if call is not None:
            waiting.remove(call)
            block = block.model_copy(update={"id": call.id})
    return block


def declared_by(calls: Iterable[ToolCallBlock]) -> Iterator[JsonObject]:
    """Yield a tool for each called name, with the names and types of its calls' arguments."""
    types: dict[str, dict[str, set[str]]] = {}
    for call in calls:
        of_tool = types.setdefault(call.name, {})
        for name, value in _arguments(call).items():
            of_tool.setdefault(name, set()).add(json_type(value))
    for tool, of_tool in types.items():
        properties: JsonObject = {
            name: {"type": next(iter(kinds))} if len(kinds) == 1 else {} for name, kinds in of_tool.items()
        }
        yield {"name": tool, "parameters": {"type": "object", "properties": properties}}


def _arguments(call: ToolCallBlock) -> dict[str, Any]:
    try:
        value = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _tools_in(path: Path) -> tuple[JsonObject, ...]:
    hint = "--tools takes from-calls, or a JSON file with a list of tools as OpenAI's API takes them"
    try:
        value = json_from_outside(text_from_outside(path), where=str(path))
        tools = read_tools(value) if isinstance(value, list) else None
    except (DataError, ValueError) as error:
        raise RequestError(str(error), hint=hint) from error
    if not tools or not all(isinstance(tool.get("name"), str) for tool in tools):
        raise RequestError(f"{path} holds no list of tools", hint=hint)
    return tools
