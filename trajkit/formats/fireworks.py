"""Fireworks' chat rows: OpenAI's, with a field for thoughts, and a weight for the whole row."""

from __future__ import annotations

from typing import Any

from trajkit.formats.base import Example, LossKind, Mask, PlainText, Row, SftFormat, Unit
from trajkit.formats.chat.rows import WEIGHTED_TEXT, Dialect, example_row, read_example
from trajkit.schema.base import JsonObject

_DIALECT = Dialect(mark="weight", reasoning="reasoning_content")


def _row(example: Example) -> Row:
    row = example_row(example, _DIALECT)
    weights = {weight for weight in example.weights if weight > 0}
    if len(weights) != 1:  # a file has this weight in every row or in none
        return row._replace(value={**row.value, "weight": 1.0})
    # the row's weight can be any number, because it applies to all its answers
    losses = tuple(loss for loss in row.losses if loss.kind != LossKind.PARTIAL_WEIGHT)
    return row._replace(value={**row.value, "weight": weights.pop()}, losses=losses)


def _read(value: JsonObject) -> Example:
    row: Any = value
    example = read_example(value, _DIALECT)
    weight = float(row.get("weight", 1))
    return example._replace(weights=tuple(weight * mark for mark in example.weights))


def _plain(unit: Unit) -> PlainText:
    return WEIGHTED_TEXT._replace(tail=WEIGHTED_TEXT.tail.removesuffix("}") + ',"weight":1.0}')


FIREWORKS = SftFormat(
    name="fireworks",
    about="Fireworks' fine-tuning",
    row=_row,
    read=_read,
    columns={
        "messages": "STRUCT(role VARCHAR, weight BIGINT, reasoning_content VARCHAR, content JSON, "
        "tool_calls JSON[], tool_call_id VARCHAR)[]",
        "tools": "JSON[]",
        "weight": "DOUBLE",
    },
    masks={Unit.STEP: Mask.EACH, Unit.EPISODE: Mask.EACH},
    min_rows=3,
    plain=_plain,
    target="fireworks",
)
"""Rows for Fireworks' supervised fine-tuning."""
