"""Prompt and completion as two texts, for base models without a chat template.

Each message stands under the name of its role. The prompt ends with a line break, so that the completion
begins a new token, which it would not after a space.
"""

from __future__ import annotations

import re
from typing import Any

from trajkit.formats.base import (
    Example,
    Loss,
    LossKind,
    Mask,
    PlainText,
    Problem,
    Row,
    SftFormat,
    Unit,
    json_line,
)
from trajkit.formats.chat.rows import functions, lost_kind
from trajkit.formats.chat.think import think_text
from trajkit.schema import (
    Block,
    Message,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
    message,
)
from trajkit.schema.base import JsonObject

_NAMES = {
    Role.SYSTEM: "System",
    Role.USER: "User",
    Role.ASSISTANT: "Assistant",
    Role.TOOL: "Tool",
}
_ROLES = {name: role for role, name in _NAMES.items()}
_HEADING = re.compile(r"(?:\A|\n\n)(System|User|Assistant|Tool):\n")
_LIKE_A_HEADING = tuple(f"\n{name}:" for name in _ROLES)
_END = "\n\nAssistant:\n"


def message_text(said: Message, where: str, losses: list[Loss]) -> str:
    """Return a message as text: its blocks one below the other, blocks that are not text in tags.

    Args:
        said: The message.
        where: Its place in the example.
        losses: Losses are added to it.
    """
    pieces = []
    for index, block in enumerate(said.content):
        kind = _lost(block)
        if kind is not None:
            losses.append(Loss(kind, f"{where}.content.{index}"))
        if piece := _piece(block):
            pieces.append(piece)
    if len(pieces) > 1:
        losses.append(Loss(LossKind.JOINED_TEXT, where))
    return "\n".join(pieces)


def _piece(block: Block) -> str:
    match block:
        case TextBlock(text=text):
            return text
        case ThoughtBlock(text=str(text)) if text:
            return think_text(text).rstrip("\n")
        case ToolCallBlock():
            call = json_line({"name": block.name, "arguments": block.arguments})
            return f"<tool_call>\n{call}\n</tool_call>"
        case ToolResultBlock():
            return f"<tool_response>\n{block.result}\n</tool_response>"
        case _:
            return ""


def _lost(block: Block) -> LossKind | None:
    match block:
        case ThoughtBlock():
            return LossKind.BLOCK_AS_TEXT if block.text else LossKind.THOUGHT
        case ToolCallBlock() | ToolResultBlock():
            return LossKind.BLOCK_AS_TEXT
        case _:
            return lost_kind(block)


def _row(example: Example) -> Row:
    losses: list[Loss] = []
    prompt = []
    for position, said in enumerate(example.messages[:-1]):
        where = f"messages.{position}"
        if text := message_text(said, where, losses):
            if any(heading in f"\n{text}" for heading in _LIKE_A_HEADING):
                losses.append(Loss(LossKind.MESSAGE_ROLE, where))
            prompt.append(f"{_NAMES[said.role]}:\n{text}")
    where = f"messages.{len(example.messages) - 1}"
    completion = message_text(example.messages[-1], where, losses)
    if example.weights[-1] != 1:
        losses.append(Loss(LossKind.PARTIAL_WEIGHT, where))
    tools = [tool["function"] for tool in functions(example.tools, losses)]
    losses.extend(Loss(LossKind.TOOL, f"tools.{position}") for position in range(len(tools)))
    value = {"prompt": "\n\n".join(prompt) + _END, "completion": completion}
    problems = [] if prompt else [Problem("no message before the answer", "prompt")]
    if example.messages[-1].role != Role.ASSISTANT:
        problems.append(Problem("the last message is not the assistant's", where))
    if not completion:
        problems.append(Problem("empty completion", "completion"))
    return Row(value, tuple(losses), tuple(problems))


def _read(value: JsonObject) -> Example:
    row: Any = value
    pieces = _HEADING.split(row["prompt"].removesuffix(_END))
    messages = [message(_ROLES[name], text) for name, text in zip(pieces[1::2], pieces[2::2], strict=True)]
    answer = message(Role.ASSISTANT, row["completion"])
    return Example((*messages, answer), (*(0.0 for _ in messages), 1.0))


def _plain(unit: Unit) -> PlainText:
    return PlainText(
        before={role.value: f"{_NAMES[role]}:\\n" for role in (Role.SYSTEM, Role.USER, Role.ASSISTANT)},
        learned="Assistant:\\n",
        after="",
        between="\\n\\n",
        last='\\n\\nAssistant:\\n","completion":"',
        tail='"}',
        head='{"prompt":"',
        refused=tuple(f"{start}{name}:" for name in _ROLES for start in ("\\n", '"')),
    )


TEXT = SftFormat(
    name="text",
    about="prompt and completion as texts, for base models without a chat template",
    row=_row,
    read=_read,
    columns={"prompt": "VARCHAR", "completion": "VARCHAR"},
    masks={Unit.STEP: Mask.LAST, Unit.EPISODE: Mask.LAST},
    plain=_plain,
)
"""Prompts and completions as texts."""
