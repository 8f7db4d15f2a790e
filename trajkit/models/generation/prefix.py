"""Keys and values of what prompts begin with, kept so that they are computed once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from trajkit._core.lazy import need

_SHORTEST = 8
"""Fewer tokens than this are computed again sooner than they are looked up."""
_MOST_BYTES = 256 * 2**20
_MOST = 16


class Kept(NamedTuple):
    """The beginning of some prompts."""

    n_tokens: int
    """How long it is."""
    layers: tuple[tuple[Any, Any], ...]
    """For each layer its keys and values, [1, heads, n_tokens, size]."""


class Prefixes:
    """What the last prompts began with; what was not used for longest is dropped first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, ...], Kept] = OrderedDict()

    def clear(self) -> None:
        """Drop everything."""
        self._kept.clear()

    def find(self, prompts: Sequence[Sequence[int]]) -> Kept | None:
        """The longest beginning of all these prompts that is kept; None when it is too short to be of use.

        At least the last token of each prompt is left out of it, because somebody must ask what follows.
        """
        most = min(map(len, prompts)) - 1
        if not self._kept or most < _SHORTEST:
            return None
        common = prompts[0][: _common(prompts, most)]
        best, length = None, _SHORTEST - 1
        for tokens in self._kept:
            if (alike := _alike(tokens, common)) > length:
                best, length = tokens, alike
        if best is None:
            return None
        self._kept.move_to_end(best)
        kept = self._kept[best]
        return Kept(
            length, tuple((keys[:, :, :length], values[:, :, :length]) for keys, values in kept.layers)
        )

    def keep(self, prompts: Sequence[Sequence[int]], known: int, past: Any) -> None:
        """Keep what some prompts have in common.

        Args:
            prompts: Those that were just read, filled up on the left.
            known: How much of them was kept before.
            past: The keys and values of all of them.
        """
        if not is_plain(past):
            return
        length = _common(prompts, min(map(len, prompts)))
        if length < known + _SHORTEST:
            return
        filled = past.get_seq_length() - len(prompts[0])
        layers = tuple(_beginning(layer.keys, layer.values, known, filled, length) for layer in past.layers)
        self._kept[tuple(prompts[0][:length])] = Kept(length, layers)
        while len(self._kept) > 1 and (len(self._kept) > _MOST or self._n_bytes() > _MOST_BYTES):
            self._kept.popitem(last=False)

    def _n_bytes(self) -> int:
        return sum(each.nbytes for kept in self._kept.values() for layer in kept.layers for each in layer)


def is_plain(past: Any) -> bool:
    """Whether keys and values of each token are kept by themselves, so that a beginning can be cut off."""
    cache = need("transformers.cache_utils", extra="local")
    return type(past) is cache.DynamicCache and all(
        type(layer) is cache.DynamicLayer for layer in past.layers
    )


def spread(kept: Kept, n_rows: int) -> Any:
    """Keys and values of a beginning as the past of several rows."""
    cache = need("transformers.cache_utils", extra="local")
    pairs = [
        (keys.expand(n_rows, -1, -1, -1), values.expand(n_rows, -1, -1, -1)) for keys, values in kept.layers
    ]
    return cache.DynamicCache(pairs)


def _beginning(keys: Any, values: Any, known: int, filled: int, length: int) -> tuple[Any, Any]:
    """Of the first row: what was known stands at the left, then it is filled up, then comes the rest."""
    torch = need("torch", extra="local")
    parts = [
        torch.cat([each[:1, :, :known], each[:1, :, known + filled : filled + length]], dim=2)
        for each in (keys, values)
    ]
    return parts[0], parts[1]


def _common(prompts: Sequence[Sequence[int]], most: int) -> int:
    """How many tokens all of them begin with, at most so many."""
    first = prompts[0]
    for other in prompts[1:]:
        most = _alike(first, other, most)
    return most


def _alike(one: Sequence[int], other: Sequence[int], most: int | None = None) -> int:
    length = min(len(one), len(other), *(() if most is None else (most,)))
    if one[:length] == other[:length]:
        return length
    return next(place for place in range(length) if one[place] != other[place])
