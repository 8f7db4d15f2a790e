"""OpenAI's chat rows: `{"messages": […], "tools": […]}` for supervised fine-tuning, and the rows of DPO.

Answers that are only context get weight 0. The weight stands before the content, so that a plain-text row can
be made by replacing the strings around its texts. Together's and Fireworks' rows have a field for thoughts,
too; at Together contents are texts and turns alternate, at Fireworks the whole row has a weight.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

from trajkit.formats.base import (
    Example,
    LossKind,
    Mask,
    Preference,
    PreferenceFormat,
    Problem,
    Row,
    SftFormat,
    Unit,
)
from trajkit.formats.chat.openai_rules import MIN_ROWS
from trajkit.formats.chat.rows import (
    WEIGHTED_TEXT,
    Chat,
    ChatWriter,
    Dialect,
    Reference,
    example_row,
    read_example,
    read_functions,
    read_messages,
)
from trajkit.schema import FileBlock, Role
from trajkit.schema.base import JsonObject

_IMAGES = ("image/jpeg", "image/png", "image/webp")


def _image(block: FileBlock, role: Role) -> Reference | None:
    """Return a reference to an image, which is allowed only in user messages, by URL."""
    url = block.source_url or ""
    if role != Role.USER or block.mime_type not in _IMAGES or not url.startswith("https://"):
        return None
    detail = {} if block.detail is None else {"detail": block.detail}
    part = {"type": "image_url", "image_url": {"url": url, **detail}}
    return Reference(part, frozenset({"source_url", "detail"}))


_DIALECT = Dialect(mark="weight", image=_image)
_TEXT_ONLY = Dialect()


OPENAI_SFT = SftFormat(
    name="openai-sft",
    about="OpenAI's fine-tuning, and services that adopted its format",
    row=partial(example_row, dialect=_DIALECT),
    read=partial(read_example, dialect=_DIALECT),
    columns={
        "messages": "STRUCT(role VARCHAR, weight BIGINT, content JSON, tool_calls JSON[], "
        "tool_call_id VARCHAR)[]",
        "tools": "JSON[]",
    },
    masks={Unit.STEP: Mask.EACH, Unit.EPISODE: Mask.EACH},
    min_rows=MIN_ROWS,
    # special tokens: the rules of the target report them
    plain=lambda unit: WEIGHTED_TEXT._replace(refused=("<|",)),
    target="openai",
)
"""Rows for supervised fine-tuning by OpenAI's service, and by those that adopted its format."""


def _dpo_row(preference: Preference) -> Row:
    writer = ChatWriter(_TEXT_ONLY)
    zeros = tuple(0.0 for _ in preference.prompt)
    asked = {"messages": writer.messages(preference.prompt, zeros, "prompt")}
    value = {
        "input": writer.row(asked, preference.tools).value,
        "preferred_output": list(writer.message(preference.chosen, 1, "chosen")),
        "non_preferred_output": list(writer.message(preference.rejected, 1, "rejected")),
    }
    return Row(value, tuple(writer.losses), tuple(writer.problems))


def _read_dpo(value: JsonObject) -> Preference:
    row: Any = value
    n_prompt = len(row["input"]["messages"])
    sides = []
    for side in ("preferred_output", "non_preferred_output"):
        messages, _ = read_messages(row["input"]["messages"] + row[side], _TEXT_ONLY)
        sides.append(messages)
    return Preference(sides[0][:n_prompt], sides[0][-1], sides[1][-1], read_functions(row["input"]))


_MESSAGES = "STRUCT(role VARCHAR, content JSON, tool_calls JSON[], tool_call_id VARCHAR)[]"

OPENAI_DPO = PreferenceFormat(
    name="openai-dpo",
    about="OpenAI's direct preference optimization, also Together's and Fireworks'",
    row=_dpo_row,
    read=_read_dpo,
    columns={
        "input": f"STRUCT(messages {_MESSAGES}, tools JSON[])",
        "preferred_output": _MESSAGES,
        "non_preferred_output": _MESSAGES,
    },
    min_rows=MIN_ROWS,
    target="openai",
)
"""Rows of preferences for OpenAI's service."""


_TOGETHER = Dialect(mark="weight", reasoning="reasoning_content", has_parts=False, has_content=True)


def _together_row(example: Example) -> Row:
    row = example_row(example, _TOGETHER)
    return row._replace(problems=(*row.problems, *_turn_problems(row.value["messages"])))


def _turn_problems(messages: Chat) -> Iterator[Problem]:
    roles = [message["role"] for message in messages]
    if not roles or roles[-1] != "assistant":
        yield Problem("the last message is not the assistant's", "messages")
    if "system" in roles[1:]:
        yield Problem("system message that is not the first", f"messages.{roles.index('system', 1)}")
    talk = roles[1:] if roles[:1] == ["system"] else roles
    if talk[:1] != ["user"]:
        yield Problem("conversation that does not begin with the user", "messages")
    for position, (one, other) in enumerate(itertools.pairwise(roles)):
        if one == other:
            yield Problem(f"two messages of role {one} in a row", f"messages.{position + 1}")


TOGETHER = SftFormat(
    name="together",
    about="Together's fine-tuning",
    row=_together_row,
    read=partial(read_example, dialect=_TOGETHER),
    columns={
        "messages": "STRUCT(role VARCHAR, weight BIGINT, reasoning_content VARCHAR, content VARCHAR, "
        "tool_calls JSON[], tool_call_id VARCHAR)[]",
        "tools": "JSON[]",
    },
    masks={Unit.STEP: Mask.EACH, Unit.EPISODE: Mask.EACH},
    plain=lambda unit: WEIGHTED_TEXT._replace(alternates=True),
    target="together",
)
"""Rows for Together's supervised fine-tuning."""


_FIREWORKS = Dialect(mark="weight", reasoning="reasoning_content")


def _fireworks_row(example: Example) -> Row:
    row = example_row(example, _FIREWORKS)
    weights = {weight for weight in example.weights if weight > 0}
    if len(weights) != 1:  # a file has this weight in every row or in none
        return row._replace(value={**row.value, "weight": 1.0})
    # the row's weight can be any number, because it applies to all its answers
    losses = tuple(loss for loss in row.losses if loss.kind != LossKind.PARTIAL_WEIGHT)
    return row._replace(value={**row.value, "weight": weights.pop()}, losses=losses)


def _read_fireworks(value: JsonObject) -> Example:
    row: Any = value
    example = read_example(value, _FIREWORKS)
    weight = float(row.get("weight", 1))
    return example._replace(weights=tuple(weight * mark for mark in example.weights))


FIREWORKS = SftFormat(
    name="fireworks",
    about="Fireworks' fine-tuning",
    row=_fireworks_row,
    read=_read_fireworks,
    columns={
        "messages": "STRUCT(role VARCHAR, weight BIGINT, reasoning_content VARCHAR, content JSON, "
        "tool_calls JSON[], tool_call_id VARCHAR)[]",
        "tools": "JSON[]",
        "weight": "DOUBLE",
    },
    masks={Unit.STEP: Mask.EACH, Unit.EPISODE: Mask.EACH},
    min_rows=3,
    plain=lambda unit: WEIGHTED_TEXT._replace(tail=WEIGHTED_TEXT.tail.removesuffix("}") + ',"weight":1.0}'),
    target="fireworks",
)
"""Rows for Fireworks' supervised fine-tuning."""
