"""What a format is: one example in, somebody's JSON out, with what was lost and what would be refused."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from trajkit.schema import Message
from trajkit.schema.base import JsonObject


class LossKind(StrEnum):
    """What a format could not carry; a noun that takes an s."""

    THOUGHT = "thought"
    IMAGE = "image"
    FILE = "file"
    UNKNOWN_BLOCK = "unknown block"
    PARTIAL_WEIGHT = "partial weight"
    TOOL_NAME = "tool name"
    TOOL_FIELD = "tool field"


class Loss(NamedTuple):
    """One thing that the row does not say although the example did."""

    kind: LossKind
    """What it was."""
    where: str
    """Its place in the example, such as `prompt.2.content.0`."""


class Problem(NamedTuple):
    """One thing for which the row would be refused by those it is written for."""

    kind: str
    """What is wrong, in words of which there are few, so that rows can be counted by it."""
    where: str
    """Its place in the row, such as `messages.2.content`."""
    value: str = ""
    """The value that is wrong; empty when there is none to show."""

    def __str__(self) -> str:
        return f"{self.where}: {self.kind}{f' {self.value}' if self.value else ''}"


class Example(NamedTuple):
    """What one row teaches: after this prompt, give this answer."""

    prompt: tuple[Message, ...]
    """Every message that the model saw."""
    answer: Message
    """What it shall say."""
    tools: tuple[JsonObject, ...] = ()
    """Tools that it could call, each `{name, description, parameters, strict}`."""
    weight: float = 1.0
    """How much the answer counts; greater than 0."""


class Row(NamedTuple):
    """An example in somebody's shape."""

    value: dict[str, Any]
    """The JSON object."""
    losses: tuple[Loss, ...] = ()
    """What of the example is not in it."""
    problems: tuple[Problem, ...] = ()
    """Why it would be refused; empty when it would be taken."""


class Format(Protocol):
    """A shape of training rows, one JSON object per line."""

    @property
    def name(self) -> str:
        """What the user calls it, such as `openai-sft`."""

    @property
    def min_rows(self) -> int:
        """Files with fewer rows are refused; 1 when any number will do."""

    @property
    def plain_sql(self) -> str:
        """The same as `row` for the usual case, over columns.

        A DuckDB expression over `prompt`, `completion`, `tools` (JSON) and `loss_weight`: the line, byte for
        byte what `json_line` makes of `row`, or null wherever there is a loss, a problem or a doubt.
        """

    def row(self, example: Example) -> Row:
        """The row of one example."""


def json_line(value: dict[str, Any]) -> str:
    """A row as one line of JSON, without the line break: no spaces, characters as they are."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
