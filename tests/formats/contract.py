"""What every format for training keeps: a row says the example, but for what its losses name, and no less.

`forgotten` says what each kind of loss takes away, apart from the code that writes rows; `canonical` what
makes no difference to a model.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any

from trajkit.formats.base import Example, Loss, LossKind, SftFormat, json_line
from trajkit.schema import Block, Message, Role

STRUCTURAL = {
    LossKind.JOINED_MESSAGE,
    LossKind.JOINED_TEXT,
    LossKind.MESSAGE_ROLE,
    LossKind.BLOCK_AS_TEXT,
    LossKind.BLOCK_ORDER,
    LossKind.IMAGE,
    LossKind.FILE_FIELD,
}
"""After these, messages and blocks no longer stand where they stood: what is left is compared as text."""


def check_row(form: SftFormat, example: Example) -> None:
    """A row of the format keeps what the contract says.

    Raises:
        AssertionError: It does not.
    """
    row = copy.deepcopy(form.row(example))
    assert row == form.row(example), "no row changes what others have, too"
    if row.problems:
        return
    line = json_line(row.value)
    assert json.loads(line) == row.value, "a row is JSON"
    assert set(row.value) <= set(form.columns), "every column of a row is in the table"
    read = form.read(json.loads(line))
    assert len(read.messages) == len(read.weights)
    kinds = {loss.kind for loss in row.losses}
    if kinds & STRUCTURAL:
        for text in texts_left(example, row.losses):
            assert json.dumps(text, ensure_ascii=False)[1:-1] in line or text in _all_texts(row.value)
        return
    expected = canonical(forgotten(example, row.losses))
    assert canonical(read.messages) == expected
    if LossKind.TOOL not in kinds:
        assert list(read.tools) == [_tool(tool, row.losses, i) for i, tool in enumerate(example.tools)]


def forgotten(example: Example, losses: Iterable[Loss]) -> list[Message]:
    """The messages of an example without what the losses name."""
    losses = tuple(losses)
    messages = []
    for position, message in enumerate(example.messages):
        mine = [
            loss
            for loss in losses
            if loss.where == f"messages.{position}" or loss.where.startswith(f"messages.{position}.")
        ]
        blocks = [
            block
            for index, each in enumerate(message.content)
            if (block := _less(each, f"messages.{position}.content.{index}", mine)) is not None
        ]
        if any(loss.kind == LossKind.TEXT_BESIDE_CALL for loss in mine):
            blocks = [block for block in blocks if block.type != "text"]
        messages.append(message.model_copy(update={"content": tuple(blocks)}))
    return messages


def _less(block: Block, where: str, losses: list[Loss]) -> Block | None:
    kinds = {loss.kind for loss in losses if loss.where == where}
    of_message = {loss.kind for loss in losses}
    if kinds & {LossKind.THOUGHT, LossKind.IMAGE, LossKind.FILE, LossKind.UNKNOWN_BLOCK}:
        return None
    if LossKind.THOUGHT_SIGNATURE in kinds and block.type == "thought":
        return block.model_copy(
            update={"signature": None, "summary": None, "provider_type": None, "extra_data": None}
        )
    if block.type in ("tool_call", "tool_result") and LossKind.TOOL_CALL_ID in of_message:
        block = block.model_copy(update={"id": ""})
    if block.type == "tool_result" and LossKind.TOOL_NAME in kinds:
        block = block.model_copy(update={"name": ""})
    return block


def canonical(messages: Iterable[Message]) -> list[tuple[str, list[Any]]]:
    """Messages as a model sees them: results are messages of their own, and what is empty is not there."""
    said: list[tuple[str, list[Any]]] = []
    for message in messages:
        results = [
            ("tool", [("result", block.id, block.result)])
            for block in message.content
            if block.type == "tool_result"
        ]
        own = [piece for block in message.content if (piece := _piece(block)) is not None]
        mine = [(message.role.value, own)] if own else []
        said.extend([*mine, *results] if message.role == Role.ASSISTANT else [*results, *mine])
    return said


def _piece(block: Block) -> Any:
    match block.type:
        case "text":
            return ("text", block.text) if block.text else None
        case "thought":
            return ("thought", block.text) if block.text else None
        case "tool_call":
            return ("call", block.id, block.name, _arguments(block.arguments))
        case "file":
            return ("file", block.source_url, block.detail)
        case "unknown":
            return ("unknown", block.data)
    return None


def _arguments(text: str) -> Any:
    """Arguments as what they say; those that are no JSON as they are spelled."""
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


def texts_left(example: Example, losses: Iterable[Loss]) -> list[str]:
    """Every text that a row of the example has to have somewhere."""
    return [
        block.text
        for message in forgotten(example, losses)
        for block in message.content
        if block.type == "text" and block.text
    ]


def _all_texts(value: Any) -> str:
    match value:
        case str():
            return value
        case list():
            return "\n".join(map(_all_texts, value))
        case dict():
            return "\n".join(map(_all_texts, value.values()))
    return ""


def _tool(tool: dict[str, Any], losses: Iterable[Loss], position: int) -> dict[str, Any]:
    gone = {loss.where.split(".")[2] for loss in losses if loss.where.startswith(f"tools.{position}.")}
    return {name: value for name, value in tool.items() if value is not None and name not in gone}
