"""The time that a training on this machine is expected to take."""

from __future__ import annotations

from trajkit._core.output.console import duration
from trajkit.schema import Model


class Estimate(Model):
    """What a training has to compute, and how fast this machine does that."""

    flops: float
    """Floating-point operations of the model on all training rows, without those that are computed twice."""
    flops_per_s: float
    """Rate of a matrix product of the model's width in the training's precision, times the processes."""
    least_s: float
    """Shortest expected time, in seconds."""
    most_s: float
    """Longest expected time, in seconds."""

    @property
    def words(self) -> str:
        """The range, such as `2 to 5 min`."""
        return duration(self.least_s, self.most_s)
