"""What is asked of a selection."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from pydantic import Field

from trajkit.errors import RequestError
from trajkit.schema.base import Model


class Share(NamedTuple):
    """So many, or so much of what there is."""

    text: str
    """As it was asked for."""
    number: int
    """How many; with a percent sign, the numerator of the share."""
    of: int | None = None
    """The denominator of a share; None for a number."""

    def limit(self, n: str) -> str:
        """SQL of how many of `n` that are: a share is rounded up."""
        return (
            str(self.number) if self.of is None else f"(({n} * {self.number} + {self.of - 1}) // {self.of})"
        )


def parse_share(text: str) -> Share:
    """Read `50` or `20%`.

    Raises:
        RequestError: It is neither.
    """
    is_share = text.strip().endswith("%")
    try:
        value = Fraction(text.strip().removesuffix("%"))
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if is_share and 0 < value <= 100:
        return Share(text.strip(), (value / 100).numerator, (value / 100).denominator)
    if not is_share and value >= 1 and value.denominator == 1:
        return Share(text.strip(), value.numerator)
    raise RequestError(f"top {text!r} is neither a number of 1 or more nor a share", hint="such as 50 or 20%")


class Selection(Model):
    """What is asked of a selection. The stages apply in the order of the fields."""

    unreserved: bool = False
    """Whether episodes of reserved worlds leave, by seed and by state, of the control too."""
    where: tuple[str, ...] = ()
    """Conditions on episodes; each must be true. Statistics of groups are those of the whole store."""
    best_of: int | None = Field(default=None, ge=1)
    """The best of so many attempts of each group, drawn with the seed: what best-of-n sampling would give."""
    top: str | None = None
    """The best of each group: `50`, or `20%` of it rounded up."""
    shortest: bool = False
    """The episode with the fewest steps of each group; of equal ones the better, if there is a score."""
    max_per_task: int | None = Field(default=None, ge=1)
    """At most so many of each environment and task, drawn with the seed."""
    balance: tuple[str, ...] = ()
    """Columns: as many of each combination as the rarest has, drawn with the seed."""
    sample: int | None = Field(default=None, ge=1)
    """So many of what is left, drawn with the seed."""
    by: tuple[str, ...] = ()
    """Columns that make a group; none for environment, task and seed."""
    score: str | None = None
    """What is compared; None for `episode_return` or `total_reward`."""
    seed: int = 0
    """Of every draw."""
    control: bool = False
    """Whether a random set of equal size is written beside it."""
