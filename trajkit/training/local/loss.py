"""Compute the loss of a batch: each token's cross-entropy times its weight."""

from __future__ import annotations

import functools
import weakref
from typing import Any, NamedTuple

from trajkit._core.lazy import need

LOGITS_AT_ONCE = 1 << 26
"""As 32-bit numbers they take 268 MB."""


class WeightedLoss(NamedTuple):
    """Sums over the tokens of a batch, which can be added over batches before the division."""

    total: Any
    """Sum of weight times cross-entropy, a scalar tensor with its gradient."""
    weight: Any
    """Sum of the weights, a scalar tensor."""


def logits_of(model: Any, batch: dict[str, Any]) -> Any:
    """Return the logits of a batch, with the rows of a line kept apart."""
    inputs = {name: batch[name] for name in ("input_ids", "position_ids")}
    if "ends" in batch:
        inputs["attention_mask"] = _mask(model, batch["ends"])
    elif batch["input_ids"].is_cuda:
        use_attention(model, "sdpa")
    # with a cache, transformers would treat the rows of a line as one, and each would see the earlier ones
    return model(**inputs, use_cache=False).logits


def _mask(model: Any, ends: Any) -> Any:
    """Return the mask by which a token attends to the tokens of its path alone.

    On a GPU it is a block mask, with which FlexAttention skips blocks that no token attends to (Dong et al.
    2024, "Flex attention: a programming model for generating optimized attention kernels").
    """
    torch = need("torch", extra="local")
    n_lines, width = ends.shape
    if ends.is_cuda:
        use_attention(model, "flex_attention")
        flex = need("torch.nn.attention.flex_attention", extra="local")

        def attends(line: Any, head: Any, place: Any, other: Any) -> Any:
            return (other <= place) & (place < ends[line, other])

        return flex.create_block_mask(attends, n_lines, None, width, width, device=ends.device)
    places = torch.arange(width, device=ends.device)
    found = (places <= places[:, None]) & (places[:, None] < ends[:, None])
    return found[:, None]


def use_attention(model: Any, kind: str) -> None:
    """Let a model compute attention in another way, such as `sdpa` or `flex_attention`."""
    base = getattr(model, "module", model)  # `module`: of several processes
    if base.config._attn_implementation != kind:
        base.set_attn_implementation(kind)


def weighted_loss(model: Any, batch: dict[str, Any]) -> WeightedLoss:
    """Compute the weighted loss of a batch.

    The loss that is minimised is `total / weight`: sum(w_t * -log p(x_t | x_<t)) / sum(w_t). If every
    weight is 1, it is the mean cross-entropy of the learned tokens; otherwise, the weighted
    likelihood of advantage-weighted behaviour cloning (Peng et al. 2019, "Advantage-weighted regression",
    eq. 8, with the weights normalised).

    Args:
        model: A causal language model.
        batch: A batch of `collate`.
    """
    torch = need("torch", extra="local")
    weights = batch["weights"].flatten()
    is_learned = weights != 0
    n_lines, width = batch["parents"].shape
    starts = torch.arange(n_lines, device=weights.device)[:, None] * width
    predicts = (batch["parents"] + starts).flatten()[is_learned]
    found = cross_entropies(model, batch, predicts, batch["input_ids"].flatten()[is_learned])
    return WeightedLoss((found * weights[is_learned]).sum(), weights.sum())


def cross_entropies(model: Any, batch: dict[str, Any], predicts: Any, targets: Any) -> Any:
    """Return the cross-entropy of each target in nats, [targets], without keeping its logits.

    The logits of all tokens would often take more memory than the rest of the model: few tokens are learned,
    and the vocabulary is large. So the output layer sees only the states that predict a target, and where
    these are many, it takes them piece by piece and computes each piece again for its gradient.

    Args:
        model: A causal language model.
        batch: A batch of `collate`.
        predicts: Which token predicts each target, int64 [targets], counted over the lines of the batch.
        targets: Token ids, int64 [targets].
    """
    torch = need("torch", extra="local")
    head = getattr(model, "module", model).get_output_embeddings()  # `module`: of several processes
    # FSDP2 gives a layer a class of its own, and keeps the output layer whole until the backward pass
    sharded = need("torch.distributed.fsdp", extra="local").FSDPModule
    is_linear = type(head) is torch.nn.Linear or (
        isinstance(head, sharded) and isinstance(head, torch.nn.Linear)
    )
    is_plain = is_linear and not _changes_logits(model)
    states: list[Any] = []

    def select(head: Any, inputs: tuple[Any, ...]) -> tuple[Any]:
        states.append(inputs[0].flatten(0, 1)[predicts])
        return (states[0][:1] if is_plain else states[0],)

    handle = head.register_forward_pre_hook(select)
    try:
        logits = logits_of(model, batch)
    finally:
        handle.remove()
    if not is_plain:
        return torch.nn.functional.cross_entropy(logits.float(), targets, reduction="none")
    n_at_once = max(1, LOGITS_AT_ONCE // len(head.weight))
    pieces = zip(states[0].split(n_at_once), targets.split(n_at_once), strict=True)
    recompute = functools.partial(torch.utils.checkpoint.checkpoint, _piece, use_reentrant=False)
    compute = _piece if len(targets) <= n_at_once else recompute
    return torch.cat([compute(head, *piece) for piece in pieces])


def _piece(head: Any, states: Any, targets: Any) -> Any:
    torch = need("torch", extra="local")
    logits = torch.nn.functional.linear(states.to(head.weight.dtype), head.weight, head.bias)
    return torch.nn.functional.cross_entropy(logits.float(), targets, reduction="none")


_CHANGES: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def _changes_logits(model: Any) -> bool:
    """Whether a model changes what its output layer gives, such as by capping it (Gemma 2)."""
    if model not in _CHANGES:
        _CHANGES[model] = _find_change(model)
    return _CHANGES[model]


def _find_change(model: Any) -> bool:
    torch = need("torch", extra="local")
    head = getattr(model, "module", model).get_output_embeddings()
    given: list[Any] = []
    handle = head.register_forward_hook(lambda head, inputs, output: given.append(output))
    try:
        with torch.no_grad():
            # several: the state of a padding token may be 0, which no cap changes
            tokens = torch.arange(min(8, len(head.weight)), device=head.weight.device)[None]
            logits = logits_of(model, {"input_ids": tokens, "position_ids": tokens})
    finally:
        handle.remove()
    return not torch.equal(given[0].float(), logits.float())
