"""Count the floating-point operations of training a model."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_LAYER = re.compile(r".*?\.\d+(?=\.)")


class Shape(NamedTuple):
    """The parts of a model that its operations depend on."""

    n_layers: int
    """Number of layers."""
    n_width: int
    """Size of a hidden state."""
    n_inner: int
    """Size of the widest state in a layer."""
    n_body: float
    """Weights of the layers that multiply each token's state; of experts, only those that a token takes."""
    n_head: int
    """Weights of the output layer."""
    n_heads_width: int
    """Attention heads times their size, over all layers."""
    n_largest: int
    """Weights of the largest layer."""
    n_ends: int
    """Weights outside of the layers: embedding, output layer, last norm."""


class Work(NamedTuple):
    """Floating-point operations."""

    model: float
    """Operations of the model, which its utilisation counts (Chowdhery et al. 2022, "PaLM", appendix B)."""
    again: float = 0.0
    """Operations that are repeated to save memory."""


def shape_of(model: Any) -> Shape | None:
    """Return the shape of a model, also on the device `meta`; None if its configuration has other names.

    Args:
        model: A causal language model of transformers, or one with an adapter.
    """
    config = model.config.get_text_config()
    try:
        n_layers, n_width, heads = config.num_hidden_layers, config.hidden_size, config.num_attention_heads
    except AttributeError:
        return None
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    outside = {id(each) for module in (embedding, head) if module is not None for each in module.parameters()}
    by_layer: dict[str, float] = {}
    n_body, n_ends = 0.0, 0
    share = _share_of_experts(config)
    for name, parameter in model.named_parameters():
        layer = _LAYER.match(name)
        if id(parameter) in outside or layer is None:
            n_ends += parameter.numel()
            continue
        by_layer[layer[0]] = by_layer.get(layer[0], 0) + parameter.numel()
        n_body += parameter.numel() * (share if ".experts." in name else 1.0)
    head_size = getattr(config, "head_dim", None) or n_width // heads
    return Shape(
        n_layers=n_layers,
        n_width=n_width,
        n_inner=getattr(config, "intermediate_size", None) or 4 * n_width,
        n_body=n_body,
        n_head=config.vocab_size * n_width,
        n_heads_width=n_layers * heads * head_size,
        n_largest=int(max(by_layer.values(), default=0)),
        n_ends=n_ends,
    )


def forward(shape: Shape, n_tokens: float, n_learned: float, n_context: float) -> float:
    """Return the operations of a forward pass: two per weight and token (Kaplan et al. 2020, table 1).

    Args:
        shape: The model.
        n_tokens: Tokens, with padding.
        n_learned: Tokens of them whose logits are computed.
        n_context: Tokens that a token may attend to.
    """
    return (
        2 * (shape.n_body * n_tokens + shape.n_head * n_learned)
        + 4 * shape.n_heads_width * n_tokens * n_context
    )


def trained(
    shape: Shape,
    n_tokens: float,
    n_learned: float,
    n_context: float,
    *,
    n_adapter: int | None,
    has_checkpoints: bool,
) -> Work:
    """Return the operations of forward and backward passes.

    A backward pass takes two more for the gradients of the states and, of trained weights, two for their own:
    6 in all, and 4 for frozen weights under an adapter. Attention has no weights and takes 3 forward passes.

    Args:
        shape: The model.
        n_tokens: Tokens, with padding.
        n_learned: Tokens of them whose logits are computed.
        n_context: Tokens that a token may attend to.
        n_adapter: Weights of the adapter; None if all weights are trained.
        has_checkpoints: States are computed again for their gradients.
    """
    once = forward(shape, n_tokens, n_learned, n_context)
    attention = 4 * shape.n_heads_width * n_tokens * n_context
    frozen = 2 * once + attention
    own = 2 * n_adapter * n_tokens if n_adapter is not None else once - attention
    layers = once - 2 * shape.n_head * n_learned
    # the loss computes the logits of learned tokens piece by piece, and again for their gradients
    return Work(frozen + own, 2 * shape.n_head * n_learned + (layers if has_checkpoints else 0))


def _share_of_experts(config: Any) -> float:
    """Return the share of experts that a token takes; 1 for a model without."""
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    n_experts = next((found for name in names if (found := getattr(config, name, None))), None)
    n_taken = getattr(config, "num_experts_per_tok", None)
    return n_taken / n_experts if n_experts and n_taken else 1.0
