"""Which seeds are played, and the seeds that follow from them: the same everywhere, by a hash."""

from __future__ import annotations

import hashlib

from trajkit.errors import RequestError

_SEED_LIMIT = 2**31
"""Derived seeds stay below this: every provider takes them."""


def seed_range(*, seeds: str | None = None, episodes: int | None = None, seed: int | None = None) -> range:
    """The seeds to play, from the text `A:B` (A to B - 1) or from a number of episodes and the first seed.

    Args:
        seeds: A half-open range such as `200:220`; excludes the other two.
        episodes: How many; 20 when not given.
        seed: The first; 0 when not given.

    Raises:
        RequestError: Both forms are given, or the range is empty, negative or no range.
    """
    if seeds is None:
        return _checked(seed or 0, (seed or 0) + (20 if episodes is None else episodes))
    if episodes is not None or seed is not None:
        raise RequestError(
            f"--seeds {seeds} says which seeds to play; --episodes and --seed say it again",
            hint="give --seeds A:B, or --episodes N with --seed S",
        )
    first, colon, end = seeds.partition(":")
    try:
        start, stop = int(first), int(end)
    except ValueError:
        start = stop = -1
    if not colon or start < 0:
        raise RequestError(
            f"{seeds!r} is not a range of seeds", hint="write A:B for A to B-1, such as 200:220"
        )
    return _checked(start, stop)


def _checked(start: int, stop: int) -> range:
    if start < 0:
        raise RequestError(f"seed {start} is negative", hint="seeds count from 0")
    if stop <= start:
        raise RequestError(f"no seed from {start} up to, without, {stop}", hint="A:B plays A to B-1")
    if stop > 2**63 - 1:
        raise RequestError(f"seed {stop} is too large", hint="seeds are below 2^63 - 1")
    return range(start, stop)


def derived_seed(*parts: int | str) -> int:
    """A seed in [0, 2^31) that follows from the parts, the same on every machine and in every version."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % _SEED_LIMIT


def derived_share(*parts: int | str) -> float:
    """A number in [0, 1) that follows from the parts."""
    return derived_seed(*parts) / _SEED_LIMIT
