"""Estimate the time of a training before it starts, and measure it afterwards."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajkit._core.lazy import need
from trajkit.training.job import Estimate, JobData
from trajkit.training.local.base_model import Sizes, precision
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.running.replicas import n_replicas
from trajkit.training.local.shape import Shape, forward, trained
from trajkit.training.local.tokens.batch import buckets, pack
from trajkit.training.local.train import threads

_REACHED = (0.3, 0.9)
"""Shares of a matrix product's rate that trainings reach: other operations are between the products."""
_CALLS = (800.0, 3000.0)
"""Small operations that take as long as a layer of the smallest batch."""
_START_S = (0.3, 2.0)
"""Start of a trainer and its last checkpoint."""
_LARGEST = {"cpu": 2e9, "cuda": 1e12}
"""Operations of the measured product."""
_MEASURED_S = 0.15


class Pass(NamedTuple):
    """Batches and tokens of one pass over the rows."""

    n_batches: float
    """Number of batches."""
    n_tokens: float
    """Tokens with their padding."""
    n_context: float
    """Mean number of tokens that a token may attend to."""


def estimated(
    sizes: Sizes,
    recipe: LocalRecipe,
    learned: JobData,
    validation: JobData | None,
    *,
    n_steps: int,
    method: str = "sft",
    lengths: NDArray[np.int64] | None = None,
) -> Estimate | None:
    """Estimate the time of a training, without loading the model; None if its shape is unknown.

    Args:
        sizes: The model.
        recipe: Settings of the training.
        learned: The rows.
        validation: Rows of the validation.
        n_steps: Steps of the optimizer.
        method: `sft`, `dpo` or `kto`.
        lengths: Tokens of each row; None if a row has several texts.
    """
    shape = sizes.shape
    if shape is None or not learned.n_tokens:
        return None
    epoch = _epoch(recipe, learned, lengths)
    n_epochs = n_steps * recipe.gradient_accumulation_steps * n_replicas(recipe) / epoch.n_batches
    n_read, n_learned = epoch.n_tokens * n_epochs, learned.n_learned_tokens * n_epochs
    if method != "sft":
        n_learned = n_read  # TRL computes the logits of all tokens
    work = trained(
        shape,
        n_read,
        n_learned,
        epoch.n_context,
        n_adapter=None if recipe.lora is None else sizes.n_trainable,
        has_checkpoints=recipe.gradient_checkpointing,
    )
    if method != "sft":  # the base model's own pass; kto also reads other completions, with both models
        n_more = 3 if getattr(recipe, "loss_type", None) == "kto" else 1
        work = work._replace(model=work.model + n_more * forward(shape, n_read, n_read, epoch.n_context))
    n_batches = n_steps * recipe.gradient_accumulation_steps
    checked = 0.0
    if validation is not None:
        n_times = n_steps / recipe.eval_steps if recipe.eval_steps else max(1.0, n_epochs)
        mean = validation.n_tokens / max(1, validation.n_rows)
        n_checked = validation.n_learned_tokens if method == "sft" else validation.n_tokens
        checked = n_times * forward(shape, validation.n_tokens, n_checked, mean)
        n_batches += round(
            n_times * validation.n_rows / recipe.per_device_eval_batch_size / n_replicas(recipe)
        )
    rate, call_s = _speed(shape, recipe, sizes, n_read / max(1.0, n_epochs * epoch.n_batches))
    rate *= n_replicas(recipe)
    computed = (work.model + work.again + checked) / rate
    called = n_batches * shape.n_layers * call_s
    least, most = (
        computed / share + called * calls + start_s
        for share, calls, start_s in zip(_REACHED[::-1], _CALLS, _START_S, strict=True)
    )
    return Estimate(flops=work.model, flops_per_s=rate, least_s=least, most_s=most)


def _epoch(recipe: LocalRecipe, learned: JobData, lengths: NDArray[np.int64] | None) -> Pass:
    """Put the rows into batches as the training does, and count."""
    size = recipe.per_device_train_batch_size
    if lengths is None:
        mean = learned.n_tokens / learned.n_rows
        return Pass(max(1.0, learned.n_rows / size), learned.n_tokens, mean)
    rows = lengths
    if recipe.packing:
        rows = np.array([lengths[line].sum() for line in pack(lengths, recipe.max_length)])
    if recipe.group_by_length:
        order = np.array(buckets(rows, size * recipe.gradient_accumulation_steps, [recipe.seed, 0]))
    else:
        order = np.random.default_rng(recipe.seed).permutation(len(rows))
    starts = np.arange(0, len(rows), size)
    widths = np.maximum.reduceat(rows[order], starts)
    n_tokens = float((widths * np.diff(np.append(starts, len(rows)))).sum())
    mean = float((rows.astype(np.float64) ** 2).sum() / rows.sum())
    return Pass(float(len(starts)), n_tokens, mean)


def _speed(shape: Shape, recipe: LocalRecipe, sizes: Sizes, n_tokens: float) -> tuple[float, float]:
    """Measure this machine in about a fifth of a second.

    Returns:
        Operations a second in a matrix product of the model's width, and seconds of a small operation.
    """
    torch = need("torch", extra="local")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision(recipe)]
    before = torch.get_num_threads()
    if (n_threads := threads(recipe, sizes.n_weights)) is not None:
        torch.set_num_threads(n_threads)
    try:
        most = _LARGEST[device] / (2 * shape.n_width * shape.n_inner)
        n_rows = max(1, round(min(n_tokens, max(16, most))))
        left = torch.randn((n_rows, shape.n_width), device=device, dtype=kind)
        right = torch.randn((shape.n_width, shape.n_inner), device=device, dtype=kind)
        goal = torch.empty((n_rows, shape.n_inner), device=device, dtype=kind)
        small = torch.zeros(1, device=device)
        product_s = _shortest_s(lambda: torch.mm(left, right, out=goal), torch, device)
        call_s = _shortest_s(lambda: small.add(1), torch, device)
    finally:
        torch.set_num_threads(before)
    return 2 * n_rows * shape.n_width * shape.n_inner / product_s, call_s


def _shortest_s(run: Any, torch: Any, device: str) -> float:
    """Return the shortest mean time of a few runs in a row: others may use the machine as well."""
    run()
    n_runs, found, began = 1, float("inf"), time.perf_counter()
    while found == float("inf") or time.perf_counter() - began < _MEASURED_S / 2:
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(n_runs):
            run()
        if device == "cuda":
            torch.cuda.synchronize()
        taken = time.perf_counter() - start
        found = min(found, taken / n_runs)
        if taken < _MEASURED_S / 20:
            n_runs *= 2
    return found
