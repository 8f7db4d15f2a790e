"""Draw the next token of each row from the model's logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from trajkit._core.lazy import need

_COLDEST = 1e-5
"""Temperatures below this count as 0."""


class Drawn(NamedTuple):
    """The next token of each row."""

    tokens: list[int]
    """Token ids."""
    logprobs: list[float]
    """Natural-log probability of each under the distribution it was drawn from: after mask, temperature and
    top-p. 0 at temperature 0, where the likeliest token has probability 1."""


def draw(
    logits: Any, temperatures: Sequence[float], top_ps: Sequence[float], uniforms: Sequence[float]
) -> Drawn:
    """Draw a token for each row, by inverting its cumulative distribution at a number in [0, 1).

    A row's token depends only on its own logits and number.

    Args:
        logits: float32 [rows, vocabulary]; minus infinity for forbidden tokens.
        temperatures: One per row; 0 takes the most likely token.
        top_ps: One per row: total probability of the likeliest tokens to keep.
        uniforms: One per row: a number in [0, 1).
    """
    torch = need("torch", extra="local")
    best = logits.argmax(dim=-1)
    if all(temperature < _COLDEST for temperature in temperatures):
        return Drawn(best.tolist(), [0.0] * len(temperatures))
    on = {"device": logits.device}
    heat = torch.tensor([max(each, _COLDEST) for each in temperatures], **on)
    chances = torch.softmax(logits / heat[:, None], dim=-1)
    if any(top_p < 1 for top_p in top_ps):
        chances = _likeliest(chances, torch.tensor(list(top_ps), **on))
    cumulated = chances.cumsum(dim=-1, dtype=_cumulated_dtype(logits.device))
    total = cumulated[:, -1]
    at = torch.tensor(list(uniforms), dtype=cumulated.dtype, **on) * total
    drawn = torch.searchsorted(cumulated, at[:, None], right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    # at the edges, rounding can select a token with probability 0
    has_chance = chances.gather(1, drawn[:, None])[:, 0] > 0
    is_cold = torch.tensor([temperature < _COLDEST for temperature in temperatures], **on)
    found = torch.where(is_cold | ~has_chance, best, drawn)
    share = chances.gather(1, found[:, None])[:, 0].to(total.dtype) / total
    logprobs = share.log().clamp(max=0).masked_fill(is_cold, 0.0)
    return Drawn(found.tolist(), logprobs.tolist())


def _likeliest(chances: Any, shares: Any) -> Any:
    """Set the probability of all tokens outside the top-p share to 0."""
    ordered, places = chances.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(dim=-1) - ordered
    ordered = ordered.masked_fill(before >= shares[:, None], 0.0)
    return chances.new_zeros(chances.shape).scatter_(-1, places, ordered)


def _cumulated_dtype(device: Any) -> Any:
    torch = need("torch", extra="local")
    return torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs lack float64
