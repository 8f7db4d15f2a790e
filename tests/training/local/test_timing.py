from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trajkit._core.output.console import duration
from trajkit.training.job import Estimate, JobData, TuneJob
from trajkit.training.local.base_model import held, load_base, measured
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.shape import forward, trained
from trajkit.training.local.timing import estimated


@pytest.mark.parametrize("lora", [None, {"r": 8}])
def test_operations_are_those_that_torch_counts(base: str, lora: dict[str, Any] | None) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    recipe = LocalRecipe.model_validate({"lora": lora})
    sizes, model, n = measured(base, recipe), load_base(base, recipe), 64
    assert sizes.shape is not None
    model.config._attn_implementation = "eager"  # whose products the counter sees
    with FlopCounterMode(display=False) as counter:
        logits = model(input_ids=torch.arange(n)[None], use_cache=False).logits
        n_forward = counter.get_total_flops()
        logits.sum().backward()
    n_adapter = None if lora is None else sizes.n_trainable
    work = trained(sizes.shape, n, n, n, n_adapter=n_adapter, has_checkpoints=False)
    assert forward(sizes.shape, n, n, n) == pytest.approx(n_forward, rel=0.02)
    # the first layer needs no gradient of its inputs, and the model has only two layers
    assert work.model == pytest.approx(counter.get_total_flops(), rel=0.08)
    again = trained(sizes.shape, n, n, n, n_adapter=n_adapter, has_checkpoints=True)
    assert again.model == work.model
    assert again.again > work.again


def data(n_rows: int, length: int) -> JobData:
    return JobData(
        store=Path("s"),
        digest="0" * 64,
        n_episodes=n_rows,
        n_steps=n_rows,
        n_learned=n_rows,
        n_rows=n_rows,
        n_tokens=n_rows * length,
        n_learned_tokens=n_rows * length // 4,
        longest=length,
    )


def test_time_is_estimated_for_the_tokens_that_are_computed(base: str) -> None:
    sizes, recipe = measured(base, LocalRecipe()), LocalRecipe(num_processes=1)

    def of(recipe: LocalRecipe, lengths: list[int], n_steps: int) -> Any:
        rows = data(len(lengths), sum(lengths) // len(lengths))
        return estimated(sizes, recipe, rows, None, n_steps=n_steps, lengths=np.array(lengths))

    even = of(recipe, [100] * 16, 2)
    assert 0 < even.least_s < even.most_s
    assert of(recipe, [100] * 16, 4).flops == pytest.approx(2 * even.flops)
    padded = of(recipe, [200, 20] * 8, 2)  # nearly twice the tokens are padding
    packed = of(recipe.model_copy(update={"packing": True, "max_length": 220}), [200, 20] * 8, 1)
    assert padded.flops > 1.5 * packed.flops
    pairs = estimated(sizes, recipe, data(16, 100), None, n_steps=2, method="dpo")
    assert pairs is not None
    assert pairs.flops > 1.4 * even.flops  # the base model reads them too


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [
        (0.04, None, "40 ms"),
        (2.31, None, "2.3 s"),
        (130, 290, "2.2 to 4.8 min"),
        (5000, 9000, "1.4 to 2.5 h"),
        (1e6, 2e6, "12 to 23 days"),
    ],
)
def test_a_time_has_two_digits_and_a_unit(least: float, most: float | None, words: str) -> None:
    assert duration(least, most) == words


def test_each_gpu_holds_its_part_and_what_it_computes_with(base: str) -> None:
    recipe = LocalRecipe(lora=None, precision="fp32")
    sizes = measured(base, recipe)
    assert sizes.shape is not None
    whole = 3 * sizes.shape.n_largest + 2 * sizes.shape.n_ends
    assert held(recipe, sizes, 1) == 16 * sizes.n_weights
    assert held(recipe, sizes, 8) == 16 * sizes.n_weights // 8 + 4 * whole
    assert sizes.shape.n_body + sizes.shape.n_ends == sizes.n_weights


def test_a_job_says_what_it_took_and_what_was_planned() -> None:
    job = TuneJob(
        job_id="j",
        key="0" * 64,
        target="local",
        base="b",
        recipe={},
        created_at=datetime.now(UTC),
        estimate=Estimate(flops=1e12, flops_per_s=1e10, least_s=120, most_s=300),
        result={"n_steps": 8, "seconds": 240.0},
    )
    assert job.outcome == "8 steps  took 4 min (planned 2 to 5 min)"
