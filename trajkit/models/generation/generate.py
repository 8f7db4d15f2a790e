"""Answering many prompts at once, in this thread."""

from __future__ import annotations

from collections.abc import Sequence

from trajkit.models.generation.ask import Ask, Said
from trajkit.models.generation.batch import Batch
from trajkit.models.generation.model import LocalModel, Voice
from trajkit.models.generation.row import Row, rows

SIDE_BY_SIDE = 128
"""The most rows of a batch."""


def generate(model: LocalModel, asks: Sequence[Ask], *, side_by_side: int = SIDE_BY_SIDE) -> list[Said]:
    """Answer many prompts at once, and wait until all are answered.

    Args:
        model: What answers.
        asks: What it is asked. Those of one name are answered together.
        side_by_side: The most of them that are; memory grows with it.

    Returns:
        The answers, in the order of what was asked.

    Raises:
        AskError: One of them cannot be asked; none is answered then.
    """
    made = rows(model, asks)
    with model.lock:
        for group in by_voice(made):
            for start in range(0, len(group), side_by_side):
                batch = Batch(group[start : start + side_by_side])
                while not batch.is_over:
                    batch.step()
    return [row.answer() for row in made]


def by_voice(made: Sequence[Row]) -> list[list[Row]]:
    """The rows of each voice, in the order of their first."""
    groups: dict[Voice, list[Row]] = {}
    for row in made:
        groups.setdefault(row.voice, []).append(row)
    return list(groups.values())
