"""A model whose weights are shared out to several processes (FSDP2)."""

from __future__ import annotations

import os
from typing import Any

from trajkit._core.lazy import need
from trajkit.training.local.base_model import Sizes, least_memory, precision
from trajkit.training.local.recipe import LocalRecipe


def held(recipe: LocalRecipe, sizes: Sizes, n: int) -> int:
    """Return the bytes that each of `n` processes holds besides its batch, where they share a model out.

    Each has 1/n of weights, gradients and optimizer states (Rajbhandari et al. 2020, "ZeRO", table 1, the
    line of all three), and whole what it computes with: two layers, of which one is on its way, the embedding
    and the output layer, and the gradients of those that are trained.

    Args:
        recipe: Settings of the training.
        sizes: The model.
        n: Number of processes; one shares nothing.
    """
    least = least_memory(recipe, sizes)
    if n == 1 or sizes.shape is None:
        return least // n
    whole = 2 * sizes.shape.n_largest + sizes.shape.n_ends
    if recipe.lora is None:
        whole += sizes.shape.n_largest + sizes.shape.n_ends
    return least // n + whole * (4 if precision(recipe) == "fp32" else 2)


def begin_sharded() -> None:
    """Let only the first process of this machine read the weights; call it before the model is loaded."""
    os.environ["ACCELERATE_USE_FSDP"] = os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "true"
    torch = need("torch", extra="local")
    need("accelerate", extra="local").PartialState(cpu=not torch.cuda.is_available())


def shard_on_cpus(arguments: Any) -> None:
    """Make a Trainer with these arguments shard on CPUs too: accelerate 1.15 does that on GPUs alone."""
    state, kinds = arguments.distributed_state, need("accelerate", extra="local").DistributedType
    if state.distributed_type == kinds.MULTI_CPU:
        state.distributed_type = kinds.MULTI_GPU


def gathered(model: Any) -> dict[str, Any]:
    """Return the trained weights, whole, in the first process; every process must call it."""
    states = need("torch.distributed.checkpoint.state_dict", extra="local")
    options = states.StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
    weights: dict[str, Any] = states.get_model_state_dict(model, options=options)
    return weights
