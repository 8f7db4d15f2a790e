"""Compute the loss of a batch: each token's cross-entropy times its weight."""

from __future__ import annotations

from typing import Any, NamedTuple

from trajkit._core.lazy import need


class WeightedLoss(NamedTuple):
    """Sums over the tokens of a batch, which can be added over batches before the division."""

    total: Any
    """Sum of weight times cross-entropy, a scalar tensor with its gradient."""
    weight: Any
    """Sum of the weights, a scalar tensor."""


def logits_of(model: Any, batch: dict[str, Any]) -> Any:
    """Return the logits of a batch, with the rows of a line kept apart."""
    # with a cache, transformers would treat the rows of a line as one, and each would see the earlier ones
    return model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits


def weighted_loss(model: Any, batch: dict[str, Any]) -> WeightedLoss:
    """Compute the weighted loss of a batch.

    The loss that is minimised is `total / weight`: sum(w_t * -log p(x_t | x_<t)) / sum(w_t). Where every
    weight is 1 it is the mean cross-entropy of the learned tokens; where they are not, the weighted
    likelihood of advantage-weighted behaviour cloning (Peng et al. 2019, "Advantage-weighted regression",
    eq. 8, with the weights normalised).

    Args:
        model: A causal language model.
        batch: A batch of `collate`.
    """
    torch = need("torch", extra="local")
    logits = logits_of(model, batch)
    weights = batch["weights"][:, 1:]
    is_learned = weights != 0
    # only learned tokens: often few of all tokens, and the vocabulary dimension is large
    found = torch.nn.functional.cross_entropy(
        logits[:, :-1][is_learned].float(), batch["input_ids"][:, 1:][is_learned], reduction="none"
    )
    return WeightedLoss((found * weights[is_learned]).sum(), weights.sum())
