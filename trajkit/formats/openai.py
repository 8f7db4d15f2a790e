"""OpenAI's chat rows for supervised fine-tuning: `{"messages": […], "tools": […]}`, and nothing else in them.

Only the last message, the answer, is learned: earlier turns of the assistant get weight 0, because each of
them is the answer of a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trajkit.formats.base import Example, Loss, LossKind, Row
from trajkit.formats.openai_rules import MIN_ROWS, problems
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

_TOOL_FIELDS = ("name", "description", "parameters", "strict")
# A gateway may write it beside them; the row says it in its own way.
_TOOL_TYPES = ("function", "client_side_function")

_MESSAGE = '{"role":"VARCHAR","content":[{"type":"VARCHAR","text":"VARCHAR"}]}'
_IS_PLAIN = "len(m.content) = 1 AND m.content[1].type = 'text' AND m.content[1].text != ''"
# A list of one element takes a lambda, which is SQL's way to name a value and use it twice.
_PLAIN_SQL = f"""
    list_transform([
        list_transform([from_json(prompt, '[{_MESSAGE}]')], lambda p: CASE
            WHEN len(p) > 0 AND list_bool_and(list_transform(p,
                lambda m: coalesce({_IS_PLAIN} AND m.role IN ('system', 'user', 'assistant'), false)))
            THEN '{{"messages":[' || array_to_string(list_transform(p, lambda m:
                '{{"role":"' || m.role || '","content":' || CAST(to_json(m.content[1].text) AS VARCHAR)
                || CASE WHEN m.role = 'assistant' THEN ',"weight":0}}' ELSE '}}' END), ',')
            END)[1]
        || list_transform([from_json(completion, '{_MESSAGE}')], lambda m: CASE
            WHEN {_IS_PLAIN} AND m.role = 'assistant' AND loss_weight = 1
                AND coalesce(json_array_length(tools), 0) = 0
            THEN ',{{"role":"assistant","content":' || CAST(to_json(m.content[1].text) AS VARCHAR) || '}}]}}'
            END)[1]
    ], lambda line: CASE
        -- special tokens are named by `row`; control codes are spelled in other hex digits there
        WHEN NOT contains(line, '<|') AND NOT contains(line, '\\u') THEN line END)[1]
"""


class OpenAISft:
    """One example as one row of OpenAI's supervised fine-tuning."""

    name = "openai-sft"
    min_rows = MIN_ROWS
    plain_sql = _PLAIN_SQL

    def row(self, example: Example) -> Row:
        """The row of one example; of thoughts, files and blocks of no known type only a loss remains."""
        losses: list[Loss] = []
        tool_names: dict[str, str] = {}
        messages: list[dict[str, Any]] = []
        for position, message in enumerate(example.prompt):
            for written in _written(message, f"prompt.{position}", losses, tool_names):
                if written["role"] == Role.ASSISTANT:
                    written["weight"] = 0
                messages.append(written)
        messages.extend(_written(example.answer, "answer", losses, tool_names))
        value: dict[str, Any] = {"messages": messages}
        if tools := list(_functions(example.tools, losses)):
            value["tools"] = tools
        if example.weight != 1:
            losses.append(Loss(LossKind.PARTIAL_WEIGHT, "weight"))
        return Row(value, tuple(losses), tuple(problems(value)))


OPENAI_SFT = OpenAISft()
"""Rows that OpenAI's service, and those that took its format over, accept for supervised fine-tuning."""


def _written(
    message: Message, where: str, losses: list[Loss], tool_names: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """A message as the messages it becomes: each tool result is one of its own, right after its call."""
    losses.extend(
        Loss(kind, f"{where}.content.{index}")
        for index, block in enumerate(message.content)
        if (kind := _lost(block)) is not None
    )
    calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
    tool_names.update({call.id: call.name for call in calls})
    results = []
    for index, block in enumerate(message.content):
        if isinstance(block, ToolResultBlock):
            results.append({"role": "tool", "tool_call_id": block.id, "content": block.result})
            if tool_names.get(block.id, block.name) != block.name:
                losses.append(Loss(LossKind.TOOL_NAME, f"{where}.content.{index}"))
    own = _own(message, calls)
    if message.role == Role.ASSISTANT:
        yield from own
        yield from results
    else:
        yield from results
        yield from own


def _own(message: Message, calls: Sequence[ToolCallBlock]) -> Iterator[dict[str, Any]]:
    """The message itself; none when it held only thoughts or tool results."""
    texts = [block.text for block in message.content if isinstance(block, TextBlock) and block.text]
    kinds = {type(block) for block in message.content}
    if (
        not texts
        and not calls
        and kinds & {ToolResultBlock, ThoughtBlock}
        and not kinds & {FileBlock, UnknownBlock}
    ):
        return
    written: dict[str, Any] = {"role": message.role.value}
    if len(texts) > 1:
        written["content"] = [{"type": "text", "text": text} for text in texts]
    elif texts or not calls:
        written["content"] = "".join(texts)
    if calls:
        written["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    yield written


def _lost(block: Block) -> LossKind | None:
    match block:
        case ThoughtBlock():
            return LossKind.THOUGHT
        case FileBlock(mime_type=str(mime_type)) if mime_type.startswith("image/"):
            return LossKind.IMAGE
        case FileBlock():
            return LossKind.FILE
        case UnknownBlock():
            return LossKind.UNKNOWN_BLOCK
        case _:
            return None


def _functions(tools: Sequence[JsonObject], losses: list[Loss]) -> Iterator[dict[str, Any]]:
    for position, tool in enumerate(tools):
        for name, value in tool.items():
            is_said = name in _TOOL_FIELDS or (name == "type" and value in _TOOL_TYPES)
            if not is_said and value is not None:
                losses.append(Loss(LossKind.TOOL_FIELD, f"tools.{position}.{name}"))
        function = {name: tool[name] for name in _TOOL_FIELDS if tool.get(name) is not None}
        yield {"type": "function", "function": function}
