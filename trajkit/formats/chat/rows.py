"""Write and read messages with a role and a content, in the dialects of OpenAI's API and others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from trajkit._core.memo import Memo, n_characters
from trajkit.errors import DataError
from trajkit.formats.base import Example, Loss, LossKind, PlainText, Problem, Row
from trajkit.formats.chat.message import read_message, read_tools
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

TOOL_FIELDS = ("name", "description", "parameters", "strict")
"""Fields of a function."""
# A gateway may write this type beside them; a row always has the type `function`.
_TOOL_TYPES = ("function", "client_side_function")

Chat = list[dict[str, Any]]
"""Messages as JSON objects."""


# the part itself says that it is an image, and the file which kind
_FILE_FIELDS = frozenset({"source_url", "storage_path", "detail", "filename"})


WEIGHTED_TEXT = PlainText(
    before={
        "system": '{"role":"system","content":"',
        "user": '{"role":"user","content":"',
        "assistant": '{"role":"assistant","weight":0,"content":"',
    },
    learned='{"role":"assistant","content":"',
    after='"}',
    last=',{"role":"assistant","content":"',
    tail='"}]}',
    head='{"messages":[',
)
"""How plain-text rows are written if answers that are only context get weight 0."""


class _Written(NamedTuple):
    """A message without losses and problems, as it was written."""

    messages: Chat
    called: dict[str, str]
    """The tools that it calls, by the id of the call."""
    answered: dict[str, str]
    """The tools whose results it has, by the id of the call."""


class Reference(NamedTuple):
    """A part of a content that refers to an image."""

    part: dict[str, Any]
    fields: frozenset[str]
    """The fields of the block that the part contains."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How messages are spelled."""

    mark: str | None = None
    """The field that says whether an assistant message is learned: `weight` (0 if it is not) or `train` (true
    or false on every message)."""
    reasoning: str | None = None
    """The field for thoughts; None if there is none."""
    has_objects: bool = False
    """Whether arguments of tool calls are JSON objects; else they are the text that the model wrote."""
    has_parts: bool = True
    """Whether content may be a list of parts; else it is one text."""
    image: Callable[[FileBlock, Role], Reference | None] = field(default=lambda _file, _role: None)
    """Return the reference to an image in a message of this role; None if it cannot be written."""
    names_results: bool = False
    """Whether a tool's result has the tool's name."""
    has_content: bool = False
    """Whether every message has a content, which may be empty."""
    written: dict[float, Memo[_Written]] = field(
        default_factory=lambda: {0: Memo(), 1: Memo()}, compare=False, repr=False
    )
    """Messages of the latest rows by weight: a row of a long conversation repeats those of the row before."""


class ChatWriter:
    """Writes the messages of one example, and collects losses and problems.

    Args:
        dialect: How messages are spelled.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._tool_names: dict[str, str] = {}
        self.losses: list[Loss] = []
        """Losses so far."""
        self.problems: list[Problem] = []
        """Reasons so far why the row would be refused."""

    def messages(
        self, messages: Sequence[Message], weights: Sequence[float], where: str = "messages"
    ) -> Chat:
        """Return the messages, with marks on the learned ones.

        Args:
            messages: In order.
            weights: One per message.
            where: Their place in the example.
        """
        written: Chat = []
        for position, (message, weight) in enumerate(zip(messages, weights, strict=True)):
            memo = self._dialect.written.get(weight)
            known = None if memo is None else memo.get(message)
            if known is None or not known.answered.items() <= self._tool_names.items():
                n_flaws = len(self.losses) + len(self.problems)
                known = self._anew(message, weight, f"{where}.{position}")
                if memo is not None and n_flaws == len(self.losses) + len(self.problems):
                    memo.keep(message, known, n_characters(known.messages))
            self._tool_names.update(known.called)
            written.extend(known.messages)
        return written

    def _anew(self, message: Message, weight: float, where: str) -> _Written:
        named: dict[type[Block], dict[str, str]] = {ToolCallBlock: {}, ToolResultBlock: {}}
        for block in message.content:
            if isinstance(block, ToolCallBlock | ToolResultBlock):
                named[type(block)][block.id] = block.name
        return _Written(list(self.message(message, weight, where)), *named.values())

    def message(self, message: Message, weight: float, where: str) -> Iterator[dict[str, Any]]:
        """Yield the messages that a message becomes: each tool result is a message of its own."""
        if weight not in (0, 1):
            self.losses.append(Loss(LossKind.PARTIAL_WEIGHT, where))
        self._tool_names.update({b.id: b.name for b in message.content if isinstance(b, ToolCallBlock)})
        if not _is_ordered(message):
            self.losses.append(Loss(LossKind.BLOCK_ORDER, where))
        results = [
            self._marked(self._result(block, f"{where}.content.{index}"), 0)
            for index, block in enumerate(message.content)
            if isinstance(block, ToolResultBlock)
        ]
        own = self._own(message, weight, where)
        if message.role == Role.ASSISTANT:
            yield from own
            yield from results
        else:
            yield from results
            yield from own

    def tools(self, tools: Sequence[JsonObject]) -> Chat:
        """Return the tools as functions."""
        return list(functions(tools, self.losses))

    def row(self, value: dict[str, Any], tools: Sequence[JsonObject]) -> Row:
        """Return a row with these values and the tools, and the losses and problems so far."""
        if written := self.tools(tools):
            value["tools"] = written
        return Row(value, tuple(self.losses), tuple(self.problems))

    def _own(self, message: Message, weight: float, where: str) -> Iterator[dict[str, Any]]:
        """Yield the message itself; nothing if it had only thoughts or tool results."""
        content = self._content(message, where)
        thought = self._thought(message, where)
        calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
        kinds = {type(block) for block in message.content}
        is_empty = not content and not thought and not calls
        if is_empty and kinds & {ToolResultBlock, ThoughtBlock} and not kinds & {FileBlock, UnknownBlock}:
            return
        if message.role == Role.TOOL:
            self.problems.append(Problem("tool message without the id of its call", where))
        written: dict[str, Any] = {"role": message.role.value}
        if thought and self._dialect.reasoning:
            written[self._dialect.reasoning] = thought
        if content or not calls or self._dialect.has_content:
            written["content"] = content or ""
        if calls:
            written["tool_calls"] = [self._call(call, f"{where}.tool_calls") for call in calls]
        yield self._marked(written, weight)

    def _marked(self, written: dict[str, Any], weight: float) -> dict[str, Any]:
        if self._dialect.mark == "train":
            return {"role": written.pop("role"), "train": weight > 0, **written}
        if self._dialect.mark == "weight" and written["role"] == Role.ASSISTANT and weight <= 0:
            return {"role": written.pop("role"), "weight": 0, **written}
        return written

    def _content(self, message: Message, where: str) -> str | Chat:
        parts: Chat = []
        for index, block in enumerate(message.content):
            at = f"{where}.content.{index}"
            if isinstance(block, TextBlock) and block.text:
                parts.append({"type": "text", "text": block.text})
            elif isinstance(block, FileBlock) and (reference := self._dialect.image(block, message.role)):
                parts.append(reference.part)
                if any(getattr(block, name) is not None for name in _FILE_FIELDS - reference.fields):
                    self.losses.append(Loss(LossKind.FILE_FIELD, at))
            elif (kind := lost_kind(block)) is not None:
                self.losses.append(Loss(kind, at))
        if all(part["type"] == "text" for part in parts) and (len(parts) < 2 or not self._dialect.has_parts):
            if len(parts) > 1:
                self.losses.append(Loss(LossKind.JOINED_TEXT, where))
            return "\n".join(part["text"] for part in parts)
        return parts

    def _thought(self, message: Message, where: str) -> str:
        thoughts = [(i, b) for i, b in enumerate(message.content) if isinstance(b, ThoughtBlock)]
        has_place = self._dialect.reasoning is not None and message.role == Role.ASSISTANT
        texts = []
        for index, block in thoughts:
            at = f"{where}.content.{index}"
            if not has_place or not block.text:
                self.losses.append(Loss(LossKind.THOUGHT, at))
                continue
            texts.append(block.text)
            if block != ThoughtBlock(text=block.text):
                self.losses.append(Loss(LossKind.THOUGHT_SIGNATURE, at))
        if len(texts) > 1:
            self.losses.append(Loss(LossKind.JOINED_TEXT, where))
        return "\n".join(texts)

    def _call(self, call: ToolCallBlock, where: str) -> dict[str, Any]:
        arguments: Any = call.arguments
        if self._dialect.has_objects:
            arguments = arguments_object(call, where, self.problems)
        function = {"name": call.name, "arguments": arguments}
        return {"id": call.id, "type": "function", "function": function}

    def _result(self, block: ToolResultBlock, where: str) -> dict[str, Any]:
        written = {"role": "tool", "tool_call_id": block.id, "content": block.result}
        if self._dialect.names_results:
            return {"role": written.pop("role"), "name": block.name, **written}
        if self._tool_names.get(block.id, "") != block.name:
            self.losses.append(Loss(LossKind.TOOL_NAME, where))
        return written


def _is_ordered(message: Message) -> bool:
    """Whether a row can keep the order of blocks: thoughts, then content, then calls; results at one end."""
    blocks = [block for block in message.content if not isinstance(block, TextBlock) or block.text]
    ranks = [
        0 if isinstance(block, ThoughtBlock) else 2 if isinstance(block, ToolCallBlock) else 1
        for block in blocks
        if not isinstance(block, ToolResultBlock)
    ]
    of_results = [isinstance(block, ToolResultBlock) for block in blocks]
    first = message.role != Role.ASSISTANT
    return ranks == sorted(ranks) and of_results == sorted(of_results, reverse=first)


def lost_kind(block: Block) -> LossKind | None:
    """Return the loss of a block without a place in the row; None for blocks with one, and for thoughts."""
    match block:
        case TextBlock() | ToolCallBlock() | ToolResultBlock() | ThoughtBlock():
            return None
        case FileBlock(mime_type=str(mime_type)) if mime_type.startswith("image/"):
            return LossKind.IMAGE
        case FileBlock():
            return LossKind.FILE
        case _:
            return LossKind.UNKNOWN_BLOCK


def misplaced_calls(message: Message, where: str) -> list[Problem]:
    """Return the problem of tool calls in a message that is not the assistant's, for formats without them."""
    if message.role == Role.ASSISTANT or not any(isinstance(b, ToolCallBlock) for b in message.content):
        return []
    return [Problem(f"tool call in a message of role {message.role.value}", where)]


def functions(tools: Sequence[JsonObject], losses: list[Loss]) -> Iterator[dict[str, Any]]:
    """Yield tools as `{"type": "function", "function": …}`; other fields than a function's are losses."""
    for position, tool in enumerate(tools):
        for name, value in tool.items():
            is_kept = name in TOOL_FIELDS or (name == "type" and value in _TOOL_TYPES)
            if not is_kept and value is not None:
                losses.append(Loss(LossKind.TOOL_FIELD, f"tools.{position}.{name}"))
        function = {name: tool[name] for name in TOOL_FIELDS if tool.get(name) is not None}
        yield {"type": "function", "function": function}


def arguments_object(call: ToolCallBlock, where: str, problems: list[Problem]) -> JsonObject:
    """Return the arguments of a call as an object; add a problem if they are not one."""
    try:
        value = json.loads(call.arguments or "{}", object_pairs_hook=_once, parse_constant=_no_constant)
    except ValueError as error:
        problems.append(Problem(f"tool arguments that are not JSON ({error})", where, repr(call.arguments)))
        return {}
    if not isinstance(value, dict):
        problems.append(Problem("tool arguments that are not an object", where, repr(call.arguments)))
        return {}
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name is repeated")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def read_messages(
    values: Sequence[JsonObject], dialect: Dialect
) -> tuple[tuple[Message, ...], tuple[float, ...]]:
    """Return the messages of a row, and the weight of each: an answer has 1 unless it is marked otherwise.

    Raises:
        DataError: They are not messages of this dialect.
    """
    names: dict[str, str] = {}
    messages, weights = [], []
    for position, value in enumerate(values):
        try:
            message = read_message({k: v for k, v in value.items() if k != dialect.mark}, names)
        except ValueError as error:
            raise DataError(f"messages.{position}: {error}") from error
        is_learned = value.get(dialect.mark, 1) if dialect.mark else 1
        messages.append(message)
        weights.append(1.0 if message.role == Role.ASSISTANT and is_learned else 0.0)
    return tuple(messages), tuple(weights)


def example_row(example: Example, dialect: Dialect) -> Row:
    """Return the row `{messages, tools}` of an example."""
    writer = ChatWriter(dialect)
    return writer.row({"messages": writer.messages(example.messages, example.weights)}, example.tools)


def read_example(row: JsonObject, dialect: Dialect) -> Example:
    """Return the example of such a row.

    Raises:
        DataError: Its messages are not of this dialect.
    """
    value: Any = row
    return Example(*read_messages(value["messages"], dialect), read_functions(row))


def read_functions(row: JsonObject) -> tuple[JsonObject, ...]:
    """Return the tools of a row, which has them as functions; empty if it has no tools."""
    tools: Any = row.get("tools")
    return read_tools(tools) or ()
