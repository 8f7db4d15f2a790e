"""What is said, as the page shows it: long texts are cut, and say where the rest can be read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

LONGEST = 20_000
"""Characters of a text that the page gets at once."""

_MAIN = {"text": "text", "thought": "text", "tool_call": "arguments", "tool_result": "result"}
"""The field of a block that people read, by its type."""


class Budget:
    """How many characters one answer may still hold. The first thing always passes.

    Args:
        n_characters: So many.
    """

    def __init__(self, n_characters: int) -> None:
        self._left = n_characters

    @property
    def is_spent(self) -> bool:
        """Whether nothing more passes."""
        return self._left <= 0

    def take(self, n_characters: int) -> None:
        """Something of this size was put in."""
        self._left -= n_characters + 50  # what JSON puts around it


def message_cut(message: dict[str, Any], *, step: int, path: str, budget: Budget) -> dict[str, Any]:
    """A message as the page shows it.

    Args:
        message: As the store has it.
        step: The step whose row holds it.
        path: Where in that row.
        budget: What the answer may still hold; blocks beyond it are counted in `n_blocks_left`.
    """
    blocks: list[dict[str, Any]] = []
    content = message["content"]
    for place, block in enumerate(content):
        if budget.is_spent and blocks:
            return {"role": message["role"], "blocks": blocks, "n_blocks_left": len(content) - place}
        blocks.append(_block_cut(block, step=step, path=f"{path}/content/{place}", budget=budget))
    return {"role": message["role"], "blocks": blocks}


def value_cut(value: Any, *, step: int | None, path: str, budget: Budget) -> Any:
    """Any other value: itself, or the beginning of its text and where the rest is.

    Args:
        value: JSON.
        step: The step whose row holds it; None for the episode's own.
        path: Where in that row.
        budget: What the answer may still hold.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    text = text_of(value)
    budget.take(min(len(text), LONGEST))
    return value if len(text) <= LONGEST else {"text": text[:LONGEST], "cut": _cut(text, step, path)}


def text_of(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def found_at(row: Any, steps: Iterable[str]) -> Any:
    """What stands in a value at a path.

    Raises:
        LookupError: Nothing does.
    """
    for step in steps:
        if isinstance(row, list) and step.isascii() and step.isdecimal():
            row = row[int(step[:18])]
        elif isinstance(row, dict):
            row = row[step]
        else:
            raise LookupError(step)
    return row


def _block_cut(block: dict[str, Any], *, step: int, path: str, budget: Budget) -> dict[str, Any]:
    main = _MAIN.get(block["type"])
    shown: dict[str, Any] = {}
    for name, value in block.items():
        text = value if isinstance(value, str) else "" if value is None else text_of(value)
        budget.take(min(len(text), LONGEST))
        if len(text) <= LONGEST:
            shown[name] = value
        elif name == main:
            shown[name], shown["cut"] = text[:LONGEST], _cut(text, step, f"{path}/{name}")
        else:
            shown[name] = {"text": text[:LONGEST], "cut": _cut(text, step, f"{path}/{name}")}
    return shown


def _cut(text: str, step: int | None, path: str) -> dict[str, Any]:
    return {"step": step, "path": path, "n_characters": len(text), "next": LONGEST}
