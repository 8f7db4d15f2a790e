"""Together's chat rows: OpenAI's, with a field for thoughts; contents are texts, and turns alternate."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from trajkit.formats.base import Example, Mask, PlainText, Problem, Row, SftFormat, Unit
from trajkit.formats.chat.rows import WEIGHTED_TEXT, Chat, Dialect, example_row, read_example

_DIALECT = Dialect(mark="weight", reasoning="reasoning_content", has_parts=False, has_content=True)


def _row(example: Example) -> Row:
    row = example_row(example, _DIALECT)
    return row._replace(problems=(*row.problems, *_problems(row.value["messages"])))


def _problems(messages: Chat) -> Iterator[Problem]:
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


def _plain(unit: Unit) -> PlainText:
    return WEIGHTED_TEXT._replace(alternates=True)


TOGETHER = SftFormat(
    name="together",
    about="Together's fine-tuning",
    row=_row,
    read=partial(read_example, dialect=_DIALECT),
    columns={
        "messages": "STRUCT(role VARCHAR, weight BIGINT, reasoning_content VARCHAR, content VARCHAR, "
        "tool_calls JSON[], tool_call_id VARCHAR)[]",
        "tools": "JSON[]",
    },
    masks={Unit.STEP: Mask.EACH, Unit.EPISODE: Mask.EACH},
    plain=_plain,
    target="together",
)
"""Rows for Together's supervised fine-tuning."""
