"""Which kind of row a file has: told by its keys, and the same in every row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from trajkit.formats.validation.chat_rules import row_flaws
from trajkit.formats.validation.finding import Flaw, shown
from trajkit.formats.validation.preference_rules import preference_flaws
from trajkit.formats.validation.target import Target
from trajkit.formats.validation.trl_rules import (
    chosen_flaws,
    completion_flaws,
    judged_flaws,
    text_row_flaws,
    token_flaws,
)


class Shape(StrEnum):
    """A kind of row."""

    CHAT = "messages"
    PREFERENCE = "input, preferred_output and non_preferred_output"
    COMPLETION = "prompt and completion"
    CHOSEN = "chosen and rejected"
    JUDGED = "prompt, completion and label"
    TEXT = "text"
    TOKENS = "input_ids"


_KEYS: Mapping[Shape, frozenset[str]] = {
    Shape.CHAT: frozenset({"messages"}),
    Shape.PREFERENCE: frozenset({"input", "preferred_output", "non_preferred_output"}),
    Shape.JUDGED: frozenset({"prompt", "completion", "label"}),
    Shape.COMPLETION: frozenset({"prompt", "completion"}),
    Shape.CHOSEN: frozenset({"chosen", "rejected"}),
    Shape.TOKENS: frozenset({"input_ids"}),
    Shape.TEXT: frozenset({"text"}),
}
_CHAT_AND_PREFERENCE = (Shape.CHAT, Shape.PREFERENCE)
_TAKEN: Mapping[str, tuple[Shape, ...]] = {
    "openai": _CHAT_AND_PREFERENCE,
    "azure": _CHAT_AND_PREFERENCE,
    "fireworks": _CHAT_AND_PREFERENCE,
    "nebius": (Shape.CHAT, Shape.COMPLETION),
    "together": (*_CHAT_AND_PREFERENCE, Shape.COMPLETION, Shape.TEXT),
    "trl": (Shape.CHAT, Shape.JUDGED, Shape.COMPLETION, Shape.CHOSEN, Shape.TOKENS, Shape.TEXT),
}
_RULES = {
    Shape.CHAT: row_flaws,
    Shape.PREFERENCE: preference_flaws,
    Shape.COMPLETION: completion_flaws,
    Shape.CHOSEN: chosen_flaws,
    Shape.JUDGED: judged_flaws,
    Shape.TEXT: text_row_flaws,
    Shape.TOKENS: token_flaws,
}


def shape_of(row: Mapping[str, Any], target: Target) -> Shape | None:
    """The kind of a row, of those that the target takes; None when it is none of them."""
    taken = _TAKEN[target.name]
    whole = [shape for shape in taken if row.keys() >= _KEYS[shape]]
    if whole:
        return whole[0]
    # a row that lost a key is told by the others
    part = [shape for shape in taken if row.keys() & _KEYS[shape]]
    return part[0] if part else None


def flaws_of(row: Mapping[str, Any], target: Target, of_file: Shape | None) -> Iterator[Flaw]:
    """What is wrong with a row of a file.

    Args:
        row: The row.
        target: Who it is for.
        of_file: The kind of the rows before it; None for the first row.
    """
    shape = shape_of(row, target)
    if shape is None:
        kinds = "; or ".join(_TAKEN[target.name])
        yield Flaw(
            "no row that is taken",
            "$",
            f"{target.name} takes {kinds}",
            f"keys: {', '.join(sorted(row)) or 'none'}",
        )
        return
    if of_file is not None and shape != of_file:
        yield Flaw(
            "a row of another kind than the first",
            "$",
            f"the file began with rows of {of_file}: one kind in each file",
            shown(sorted(row)),
        )
        return
    if (
        shape == Shape.TEXT
        and Shape.TEXT in _TAKEN[target.name]
        and len(row.keys() & {"messages", "prompt"}) > 0
    ):
        yield Flaw("a row of two kinds", "$", "text, or messages: not both", shown(sorted(row)))
    yield from _RULES[shape](dict(row), target)
