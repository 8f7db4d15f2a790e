"""Parse the sizes of a split: sides with shares, or with numbers of episodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

from trajkit.errors import RequestError

TOLERANCE = Decimal("1e-9")
"""Shares whose sum is this close to 1 count as everything: thirds have no finite decimal."""

_SIDE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_EXAMPLES = "such as train=0.9,val=0.1, or train=500,val=100"


class Ratio(NamedTuple):
    """Shares or counts by side, in the order given."""

    shares: Mapping[str, Decimal]
    """Share of all places for each side; they add up to 1 at most."""
    counts: Mapping[str, int]
    """Most episodes of each side; empty if shares were given."""

    @property
    def floats(self) -> dict[str, float]:
        """The shares as floats."""
        return {name: float(share) for name, share in self.shares.items()}

    @property
    def text(self) -> str:
        """The shares or counts as `parse_ratio` reads them."""
        return typed(self.counts) if self.counts else typed(self.floats)


def parse_ratio(text: str) -> dict[str, float]:
    """Parse a ratio: `train=0.9,val=0.1` (a point or a % makes a share), or `train=500,val=100`.

    Raises:
        RequestError: It is not a ratio.
    """
    ratio: dict[str, float] = {}
    for piece in text.split(","):
        name, _, value = (part.strip() for part in piece.partition("="))
        try:
            number = float(Decimal(value.removesuffix("%")) / 100) if value.endswith("%") else float(value)
        except (ValueError, ArithmeticError):
            raise RequestError(f"{piece.strip()!r} is not a side and its share", hint=_EXAMPLES) from None
        if name in ratio:
            raise RequestError(f"side {name!r} is there twice", hint=_EXAMPLES)
        ratio[name] = int(value) if value.isdecimal() else number
    return ratio


def as_ratio(ratio: Mapping[str, float]) -> Ratio:
    """Validate sides with floats as shares, or ints as counts.

    Raises:
        RequestError: Shares and counts are mixed, add up to more than 1, or a name cannot be a folder's.
    """
    if not ratio:
        raise RequestError("a split needs sides", hint=_EXAMPLES)
    if len({name.lower() for name in ratio}) < len(ratio):
        raise RequestError(
            f"two of {', '.join(ratio)} differ only by case", hint="their folders would be one"
        )
    for name, value in ratio.items():
        if not _SIDE_NAME.fullmatch(name):
            raise RequestError(f"side {name!r} cannot be a folder", hint="letters, digits, _, - and .")
        if isinstance(value, bool) or not value > 0 or value == float("inf"):
            raise RequestError(f"{name}={value}: a side has more than nothing", hint=_EXAMPLES)
    n_counts = sum(isinstance(value, int) for value in ratio.values())
    if n_counts == len(ratio):
        total = Decimal(sum(int(value) for value in ratio.values()))
        counts = {name: int(value) for name, value in ratio.items()}
        return Ratio({name: Decimal(value) / total for name, value in counts.items()}, counts)
    if n_counts:
        raise RequestError("some sides have a share and some a count", hint=_EXAMPLES)
    shares = {name: Decimal(str(value)) for name, value in ratio.items()}  # 0.1, not the nearest double
    if sum(shares.values()) > 1 + TOLERANCE:
        raise RequestError(f"the shares add up to {sum(shares.values())}, more than 1", hint=_EXAMPLES)
    return Ratio(shares, {})


def typed(sizes: Mapping[str, float]) -> str:
    """Write shares or counts as `parse_ratio` reads them."""
    return ",".join(f"{name}={size}" for name, size in sizes.items())
