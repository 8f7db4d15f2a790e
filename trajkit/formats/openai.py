"""OpenAI's chat rows: `{"messages": […], "tools": […]}` for supervised fine-tuning, and the rows of DPO.

Answers that are only context get weight 0. The weight stands before the content, so that a plain-text row can
be made by replacing the strings around its texts.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from trajkit.formats.base import (
    Mask,
    PlainText,
    Preference,
    PreferenceFormat,
    Row,
    SftFormat,
    Unit,
)
from trajkit.formats.chat.openai_rules import MIN_ROWS
from trajkit.formats.chat.rows import (
    WEIGHTED_TEXT,
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

COLUMNS = {
    "messages": "STRUCT(role VARCHAR, weight BIGINT, content JSON, tool_calls JSON[], "
    "tool_call_id VARCHAR)[]",
    "tools": "JSON[]",
}
"""Columns of a table of such rows."""

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


def _plain(unit: Unit) -> PlainText:
    return WEIGHTED_TEXT._replace(refused=("<|",))  # special tokens: the rules of the target report them


OPENAI_SFT = SftFormat(
    name="openai-sft",
    about="OpenAI's fine-tuning, and services that adopted its format",
    row=partial(example_row, dialect=_DIALECT),
    read=partial(read_example, dialect=_DIALECT),
    columns=COLUMNS,
    masks={Unit.STEP: Mask.EACH, Unit.EPISODE: Mask.EACH},
    min_rows=MIN_ROWS,
    plain=_plain,
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
