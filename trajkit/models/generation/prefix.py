"""Cache the keys and values of common prompt prefixes, so that they are computed once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from trajkit._core.lazy import need

_SHORTEST = 8
"""Prefixes shorter than this are computed again, which is faster than a look-up."""
_MOST_BYTES = 256 * 2**20
_MOST = 16


class Kept(NamedTuple):
    """A cached prefix."""

    n_tokens: int
    """Length of the prefix."""
    layers: tuple[tuple[Any, Any], ...]
    """Keys and values of each layer, [1, heads, n_tokens, size]."""


class Prefixes:
    """Prefixes of the latest prompts; the least recently used is dropped first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, ...], Kept] = OrderedDict()

    def clear(self) -> None:
        """Drop all prefixes."""
        self._kept.clear()

    def find(self, prompts: Sequence[Sequence[int]]) -> Kept | None:
        """Return the longest cached prefix of all these prompts; None when it is too short to help.

        It never contains the last token of a prompt, because the model must compute what follows that token.
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
        """Cache the common prefix of some prompts.

        Args:
            prompts: Prompts that were just computed, padded on the left.
            known: Length of the prefix that was already cached.
            past: Keys and values of all of them.
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
    """Check whether the cache stores each token separately, so that a prefix can be cut off."""
    cache = need("transformers.cache_utils", extra="local")
    return type(past) is cache.DynamicCache and all(
        type(layer) is cache.DynamicLayer for layer in past.layers
    )


def spread(kept: Kept, n_rows: int) -> Any:
    """Return a cached prefix as the past of several rows."""
    cache = need("transformers.cache_utils", extra="local")
    pairs = [
        (keys.expand(n_rows, -1, -1, -1), values.expand(n_rows, -1, -1, -1)) for keys, values in kept.layers
    ]
    return cache.DynamicCache(pairs)


def _beginning(keys: Any, values: Any, known: int, filled: int, length: int) -> tuple[Any, Any]:
    """Cut the prefix from the first row: the known part is at the left, then padding, then the rest."""
    torch = need("torch", extra="local")
    parts = [
        torch.cat([each[:1, :, :known], each[:1, :, known + filled : filled + length]], dim=2)
        for each in (keys, values)
    ]
    return parts[0], parts[1]


def _common(prompts: Sequence[Sequence[int]], most: int) -> int:
    """Count the common first tokens of all prompts, up to a limit."""
    first = prompts[0]
    for other in prompts[1:]:
        most = _alike(first, other, most)
    return most


def _alike(one: Sequence[int], other: Sequence[int], most: int | None = None) -> int:
    length = min(len(one), len(other), *(() if most is None else (most,)))
    if one[:length] == other[:length]:
        return length
    return next(place for place in range(length) if one[place] != other[place])
