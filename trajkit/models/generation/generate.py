"""Answer many prompts together, in this thread."""

from __future__ import annotations

from collections.abc import Sequence

from trajkit.models.generation.ask import Ask, Said
from trajkit.models.generation.batch import Batch
from trajkit.models.generation.model import LocalModel, Voice
from trajkit.models.generation.row import Row, rows

SIDE_BY_SIDE = 128
"""Most rows of a batch."""


def generate(model: LocalModel, asks: Sequence[Ask], *, side_by_side: int = SIDE_BY_SIDE) -> list[Said]:
    """Answer many prompts together, and return when all are answered.

    Args:
        model: The model.
        asks: The requests. Requests to one name are answered together.
        side_by_side: Most rows at the same time; memory grows with it.

    Returns:
        The answers, in the order of the requests.

    Raises:
        AskError: A request cannot be answered; then none is.
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
    """Group rows by voice, in the order of the first row of each."""
    groups: dict[Voice, list[Row]] = {}
    for row in made:
        groups.setdefault(row.voice, []).append(row)
    return list(groups.values())
