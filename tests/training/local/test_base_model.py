from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from trajkit.errors import MissingExtra, RequestError
from trajkit.models.random_model import shapes
from trajkit.training.local.arguments import check_optimizer
from trajkit.training.local.base_model import (
    batch_memory,
    count,
    least_memory,
    load_base,
    measured,
    settled,
)
from trajkit.training.local.recipe import LocalRecipe


@pytest.mark.parametrize(
    "lora",
    daily(
        [
            None,
            {},
            {"r": 4, "use_rslora": True},
            {"use_dora": True},
            {"target_modules": ("q_proj", "v_proj")},
            {"use_dora": True, "target_modules": ("down_proj",)},
        ],
        2,
    ),
)
def test_a_model_is_measured_without_its_weights(base: str, lora: dict[str, Any] | None) -> None:
    recipe = LocalRecipe.model_validate({"lora": lora})
    sizes = measured(base, recipe)
    assert (sizes.n_weights, sizes.n_trainable) == count(load_base(base, recipe))
    assert (sizes.n_positions, sizes.n_vocabulary) == (4096, 257)


def test_a_recipe_survives_its_record() -> None:
    recipe = LocalRecipe.model_validate(
        {"lora": {"target_modules": ["q_proj"]}, "play": {"seeds": "1:2", "tasks": ["goto"]}}
    )
    assert recipe.lora is not None
    assert recipe.lora.target_modules == ("q_proj",)
    assert LocalRecipe.model_validate(recipe.model_dump(mode="json")) == recipe


def test_the_least_memory_is_counted(base: str) -> None:
    recipe = LocalRecipe(lora=None, precision="fp32")
    sizes = measured(base, recipe)
    assert least_memory(recipe, sizes) == 16 * sizes.n_weights  # weight, gradient, two moments: 4 bytes each
    sgd = recipe.model_copy(update={"optim": "sgd"})
    assert least_memory(sgd, sizes) == 8 * sizes.n_weights


def stored_bytes(model: Any, n_tokens: int) -> int:
    """What a forward pass of a row keeps for the gradient, besides weights."""
    import torch

    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    model.train()
    tokens = torch.arange(n_tokens)[None] % 200
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(input_ids=tokens, position_ids=torch.arange(n_tokens)[None], use_cache=False, logits_to_keep=1)
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize("lora", [None, {"r": 4}])
def test_the_memory_of_a_batch_is_known_before_it_is_there(base: str, lora: dict[str, Any] | None) -> None:
    recipe = LocalRecipe.model_validate({"lora": lora})
    sizes = measured(base, recipe)
    assert sizes.stored is not None
    assert 256 * sizes.stored.kept == pytest.approx(stored_bytes(load_base(base, recipe), 256), rel=0.15)
    sparing = measured(base, recipe.model_copy(update={"gradient_checkpointing": True}))
    predicted, fewer = (batch_memory(each, 256, n_learned=0) for each in (sizes, sparing))
    assert predicted is not None
    assert fewer is not None
    assert fewer < 0.8 * predicted  # the tiny model has two layers, and one of them is whole


TAKEN_GB: dict[str, tuple[str, dict[str, Any], float]] = {
    "all weights": ("qwen3-0.6b", {"use_liger_kernel": True, "lora": None}, 61.1),
    "4 bits": (
        "qwen3-8b",
        {"use_liger_kernel": True, "gradient_checkpointing": True, "load_in": "4bit"},
        15.9,
    ),
    "plain": ("qwen3-0.6b", {}, 59.0),
    "liger": ("qwen3-0.6b", {"use_liger_kernel": True}, 43.9),
    "compiled": ("qwen3-0.6b", {"torch_compile": True}, 44.1),
    "checkpoints": ("qwen3-8b", {"use_liger_kernel": True, "gradient_checkpointing": True}, 24.9),
    "1b": ("llama-3.2-1b", {"use_liger_kernel": True, "gradient_checkpointing": True}, 5.5),
    "small, 4 bits": ("qwen3-0.6b", {"use_liger_kernel": True, "load_in": "4bit"}, 43.3),
}
"""The most that torch had allocated on an H200; batches of 8 lines of 4,096 tokens, with checkpoints 4."""


@pytest.mark.parametrize("name", daily([*TAKEN_GB], 1))
def test_the_plan_says_what_a_gpu_took(name: str, tmp_path: Path) -> None:
    from transformers import AutoConfig

    shape, options, taken = TAKEN_GB[name]
    recipe = LocalRecipe.model_validate({"precision": "bf16", **options})
    AutoConfig.for_model(**shapes()[shape], dtype="bfloat16").save_pretrained(tmp_path)
    sizes = measured(str(tmp_path), recipe)
    n_tokens = 4096 * (4 if recipe.gradient_checkpointing else 8)
    batch = batch_memory(sizes, n_tokens, n_tokens // 7)
    assert batch is not None
    assert (least_memory(recipe, sizes) + batch) / 1e9 == pytest.approx(taken, rel=0.1)


def test_layers_that_are_not_there_are_named_before_anything_starts(base: str, tmp_path: Path) -> None:
    recipe = LocalRecipe.model_validate({"lora": {"target_modules": ("nothing_like_it",)}})
    with pytest.raises(RequestError, match="nothing_like_it"):
        measured(base, recipe)
    with pytest.raises(RequestError, match="no model in"):
        measured(str(tmp_path), LocalRecipe())


def test_a_folder_is_found_from_any_other(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(base).parent)
    assert settled("tiny") == str(Path(base).resolve())
    assert settled("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"


def test_optimizers_are_checked_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    check_optimizer(LocalRecipe(optim="sgd"))
    with pytest.raises(RequestError, match="no optimizer 'adamm'") as caught:
        check_optimizer(LocalRecipe(optim="adamm"))
    assert "adamw_torch" in (caught.value.hint or "")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(RequestError, match="needs a GPU"):
        check_optimizer(LocalRecipe(optim="paged_adamw_8bit"))


def test_a_package_that_is_not_there_names_its_extra() -> None:
    from trajkit.training.local.arguments import check_reports

    check_reports(LocalRecipe(report_to="tensorboard"))
    with pytest.raises(MissingExtra) as caught:
        check_reports(LocalRecipe(report_to="wandb"))
    assert caught.value.hint == "pip install 'trajkit[wandb]'"


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # of the compiler itself
def test_compiled_layers_have_the_same_loss(base: str) -> None:
    import torch

    ids = torch.arange(1, 33)[None]
    losses = [
        load_base(base, LocalRecipe(torch_compile=compiled))(input_ids=ids, labels=ids).loss.item()
        for compiled in (False, True)
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_liger_is_not_compiled() -> None:
    with pytest.raises(ValueError, match="leave use_liger_kernel out"):
        LocalRecipe(torch_compile=True, use_liger_kernel=True)
