"""Rows for training on this machine: conversations for chat templates, with the weight of each answer.

Other trainers cannot use the weights, so `trajkit convert` does not offer this format.
"""

from __future__ import annotations

from typing import Any

from trajkit.formats.base import Example, LossKind, Mask, Problem, Row, SftFormat, Unit
from trajkit.formats.chat.rows import ChatWriter, read_functions, read_messages
from trajkit.formats.trl import DIALECT
from trajkit.schema import Role
from trajkit.schema.base import JsonObject


def _row(example: Example) -> Row:
    writer = ChatWriter(DIALECT)
    messages: list[dict[str, Any]] = []
    weights: list[float] = []
    for position, (message, weight) in enumerate(zip(example.messages, example.weights, strict=True)):
        for written in writer.message(message, weight, f"messages.{position}"):
            messages.append(written)
            if written["role"] == Role.ASSISTANT:
                weights.append(weight)
    value: dict[str, Any] = {"messages": messages, "weights": weights}
    if not any(weights):
        writer.problems.append(Problem("nothing to learn", "weights"))
    row = writer.row(value, example.tools)
    return row._replace(losses=tuple(loss for loss in row.losses if loss.kind != LossKind.PARTIAL_WEIGHT))


def _read(value: JsonObject) -> Example:
    row: Any = value
    messages, _ = read_messages(row["messages"], DIALECT)
    weights = iter(row["weights"])
    return Example(
        messages,
        tuple(float(next(weights)) if message.role == Role.ASSISTANT else 0.0 for message in messages),
        read_functions(row),
    )


WEIGHTED = SftFormat(
    name="weighted",
    about="conversations with a real weight for every answer, for training on this machine",
    row=_row,
    read=_read,
    columns={
        "messages": "STRUCT(role VARCHAR, reasoning_content VARCHAR, content VARCHAR, tool_calls JSON[], "
        '"name" VARCHAR, tool_call_id VARCHAR)[]',
        "weights": "DOUBLE[]",
        "tools": "JSON[]",
    },
    masks={Unit.STEP: Mask.EACH, Unit.EPISODE: Mask.EACH},
)
"""Rows of `messages`, `weights` (one for each message of the assistant, in order) and `tools`."""
