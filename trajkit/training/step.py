"""How far a training is, wherever it runs."""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """How far a training is."""

    n_done: int
    """Steps of the optimizer, or iterations of play."""
    n_total: int | None
    """Of how many; None where nobody says."""
    epoch: float | None
    """Passes over the rows; None where nobody says."""
    loss: float | None
    """Mean loss of the learned tokens since the last time; None where this is a validation."""
    eval_loss: float | None
    """The validation's; None where this is none."""
    learning_rate: float | None
    """At this step; None where nobody says."""
    words: str = ""
    """What a progress line says of it; empty for its loss."""
