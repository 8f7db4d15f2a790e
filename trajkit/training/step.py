"""The progress of a training."""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """The progress of a training."""

    n_done: int
    """Steps of the optimizer, or iterations of play."""
    n_total: int | None
    """Total number of steps or iterations; None when unknown."""
    epoch: float | None
    """Passes over the rows; None when unknown."""
    loss: float | None
    """Mean loss of the learned tokens since the last report; None for a validation."""
    eval_loss: float | None
    """Validation loss; None where there was no validation."""
    learning_rate: float | None
    """Learning rate at this step; None when unknown."""
    words: str = ""
    """Text of a progress line; empty for its loss."""
