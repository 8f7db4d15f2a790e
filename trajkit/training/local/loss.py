"""The loss of a batch: each token's cross-entropy times its weight."""

from __future__ import annotations

from typing import Any, NamedTuple

from trajkit._core.lazy import need


class WeightedLoss(NamedTuple):
    """Sums over the tokens of a batch, so that batches can be added up before they are divided."""

    total: Any
    """The sum of weight times cross-entropy, a tensor of one number with its gradient."""
    weight: Any
    """The sum of the weights, a tensor of one number."""


def logits_of(model: Any, batch: dict[str, Any]) -> Any:
    """What a model says of each token of a batch, its rows kept apart."""
    # with a cache transformers takes the rows of a line for one, and each would see those before it
    return model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits


def weighted_loss(model: Any, batch: dict[str, Any]) -> WeightedLoss:
    """Run a model on a batch.

    The loss that is minimised is `total / weight`: sum(w_t * -log p(x_t | x_<t)) / sum(w_t). Where every
    weight is 1 it is the mean cross-entropy of the learned tokens; where they are not, the weighted
    likelihood of advantage-weighted behaviour cloning (Peng et al. 2019, "Advantage-weighted regression",
    eq. 8, with the weights normalised).

    Args:
        model: A causal language model.
        batch: What `collate` makes.
    """
    torch = need("torch", extra="local")
    logits = logits_of(model, batch)
    weights = batch["weights"][:, 1:]
    is_learned = weights != 0
    # only what is learned: for most rows that is a small part of the tokens, and a vocabulary is wide
    found = torch.nn.functional.cross_entropy(
        logits[:, :-1][is_learned].float(), batch["input_ids"][:, 1:][is_learned], reduction="none"
    )
    return WeightedLoss((found * weights[is_learned]).sum(), weights.sum())
