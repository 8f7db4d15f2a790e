"""Choose the seeds to play, and derive further seeds from them by a hash, the same on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from trajkit._core.seeds import Seeds, as_seeds, typed_seeds
from trajkit.errors import RequestError

__all__ = ["Seeds", "as_seeds", "chosen_seeds", "derived_seed", "derived_share", "shuffled"]

_SEED_LIMIT = 2**31
"""Derived seeds are below this, because every provider accepts them."""


def chosen_seeds(*, seeds: str | None = None, episodes: int | None = None, seed: int | None = None) -> Seeds:
    """Return the seeds to play, as typed, or from a number of episodes and the first seed.

    Args:
        seeds: `200:220` (half-open), `0:1000:7` (every 7th), `1,5,9`, several of these with commas, or the
            name of a file with one per line; excludes the other two.
        episodes: Number of seeds; 20 when not given.
        seed: First seed; 0 when not given.

    Raises:
        RequestError: Both forms are given, or the text has no seed, or an invalid one.
    """
    if seeds is None:
        start = seed or 0
        return as_seeds(f"{start}:{start + (20 if episodes is None else episodes)}")
    if episodes is not None or seed is not None:
        raise RequestError(
            f"--seeds {seeds} already gives the seeds; --episodes and --seed would give them again",
            hint="give --seeds A:B, or --episodes N with --seed S",
        )
    return typed_seeds(seeds)


def derived_seed(*parts: int | str) -> int:
    """Return a seed in [0, 2^31) that depends only on the parts, on every machine and in every version."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % _SEED_LIMIT


def derived_share(*parts: int | str) -> float:
    """Return a number in [0, 1) that depends only on the parts."""
    return derived_seed(*parts) / _SEED_LIMIT


def shuffled(n: int, *parts: int | str) -> Iterator[int]:
    """Yield the numbers below `n` in an order that depends on the parts, without storing a list.

    A Feistel network of four rounds permutes the numbers with twice the bits of a half. A result of `n` or
    more is permuted again until it is below `n`.
    """
    half = max(1, (max(n - 1, 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    for index in range(n):
        place = index
        while True:
            left, right = place >> half, place & mask
            for turn in range(4):
                left, right = right, left ^ (derived_seed("shuffle", *parts, turn, right) & mask)
            place = left << half | right
            if place < n:
                break
        yield place
