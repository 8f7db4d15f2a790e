"""Train a model on this machine: from rows of tokens to a folder with an adapter."""

from __future__ import annotations

import functools
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._lazy import need
from trajkit.errors import DataError, RequestError
from trajkit.schema import Model
from trajkit.targets.local.batch import TokenRows, collate
from trajkit.targets.local.packing import pack
from trajkit.targets.local.recipe import LocalRecipe
from trajkit.targets.local.tokenised import open_tokens
from trajkit.targets.local.trainer import trainer_class

_SMALL = 10_000_000
_WRITTEN_LAST = "trainer_state.json"  # of a checkpoint's files, by transformers 5.23


class Step(NamedTuple):
    """How far a training is."""

    n_done: int
    """Steps of the optimizer."""
    n_total: int
    """Of how many."""
    epoch: float
    """Passes over the rows."""
    loss: float | None
    """Mean loss of the learned tokens since the last time; None where this is a validation."""
    eval_loss: float | None
    """The validation's; None where this is none."""
    learning_rate: float | None
    """At this step."""


class Trained(Model):
    """What came out."""

    n_steps: int
    """Steps of the optimizer."""
    n_trainable: int
    """Weights that were trained."""
    n_weights: int
    """Weights of the model, the adapter's included."""
    train_loss: float
    """Mean over the whole training."""
    eval_loss: float | None
    """The best validation's; None without a validation split."""
    best_step: int | None
    """The step that it was at, which is what was kept; None without a validation split."""
    was_stopped_early: bool
    """Whether patience ran out."""


def train(
    base: str,
    tokens: Path,
    goal: Path,
    recipe: LocalRecipe,
    *,
    validation: Path | None = None,
    workspace: Path,
    on_step: Callable[[Step], None] = lambda step: None,
) -> Trained:
    """Train, and save what was trained.

    A run that was stopped goes on from its last checkpoint in `workspace`, to the same result.

    Args:
        base: Folder or id of the model.
        tokens: What `tokenise` wrote.
        goal: The folder that the adapter (or the whole model, where every weight is trained) is saved in.
        recipe: How.
        validation: The same for a split that is not learned; the best checkpoint by its loss is kept.
        workspace: Folder for checkpoints.
        on_step: Told of every loss.

    Raises:
        RequestError: There is no such model, or this machine cannot do what the recipe says.
        DataError: There is nothing to learn.
        MissingExtra: torch, transformers or peft is not installed.
    """
    model = load_base(base, recipe)
    n_weights, n_trainable = _count(model)
    _set_threads(recipe, n_weights)
    rows = _rows(tokens, recipe)
    if not len(rows):
        raise DataError(f"{tokens} has no row", hint="choose more episodes")
    trainer = trainer_class()(
        model=model,
        args=_arguments(recipe, workspace, has_validation=validation is not None),
        train_dataset=rows,
        eval_dataset=None if validation is None else _rows(validation, recipe, is_packed=False),
        data_collator=functools.partial(collate, padding=_padding(model)),
        buckets_seed=recipe.seed if recipe.group_by_length else None,
        callbacks=_callbacks(recipe, on_step, has_validation=validation is not None),
    )
    finished = trainer.train(resume_from_checkpoint=_last_checkpoint(workspace))
    trainer.model.save_pretrained(goal)
    state = trainer.state
    return Trained(
        n_steps=state.global_step,
        n_trainable=n_trainable,
        n_weights=n_weights,
        train_loss=finished.training_loss,
        eval_loss=state.best_metric,
        best_step=state.best_global_step or None,
        was_stopped_early=validation is not None and state.global_step < state.max_steps,
    )


def load_base(base: str, recipe: LocalRecipe) -> Any:
    """The base model with the adapter that is to be trained.

    Raises:
        RequestError: There is no such model, or this machine cannot load it so.
    """
    torch = need("torch", extra="local")
    transformers = need("transformers", extra="local")
    torch.manual_seed(recipe.seed)
    if recipe.load_in is not None and not torch.cuda.is_available():
        raise RequestError(f"load_in {recipe.load_in} needs a GPU", hint="leave it out")
    options: dict[str, Any] = {"dtype": torch.bfloat16 if precision(recipe) == "bf16" else torch.float32}
    if recipe.lora is None:
        options["dtype"] = torch.float32  # every weight is trained: what is rounded is lost
    if recipe.load_in is not None:
        quantised = {f"load_in_{recipe.load_in}": True}
        options["quantization_config"] = transformers.BitsAndBytesConfig(**quantised)
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(base, **options)
    except (OSError, ValueError) as error:
        first = str(error).splitlines()[0]
        hint = "a folder with config.json, or an id"
        raise RequestError(f"no model in {base}: {first}", hint=hint) from error
    if recipe.lora is None:
        return model
    peft = need("peft", extra="local")
    options = recipe.lora.model_dump()
    if isinstance(options["target_modules"], tuple):
        options["target_modules"] = list(options["target_modules"])
    try:
        with warnings.catch_warnings():
            # peft 0.21 asks transformers 5 for a name that it calls old
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            return peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **options))
    except ValueError as error:  # no layer has such a name
        raise RequestError(str(error).splitlines()[0], hint="target_modules: all-linear") from error


def precision(recipe: LocalRecipe) -> str:
    """`fp32`, `bf16` or `fp16`: what the recipe says, or what this machine does best."""
    if recipe.precision != "auto":
        return recipe.precision
    torch = need("torch", extra="local")
    if not torch.cuda.is_available():
        return "fp32"
    return "bf16" if torch.cuda.is_bf16_supported() else "fp16"


def _rows(path: Path, recipe: LocalRecipe, *, is_packed: bool | None = None) -> TokenRows:
    found = open_tokens(path)
    if not (recipe.packing if is_packed is None else is_packed):
        return TokenRows(found.table)
    return TokenRows(found.table, pack(found.lengths, recipe.max_length))


def _arguments(recipe: LocalRecipe, workspace: Path, *, has_validation: bool) -> Any:
    torch = need("torch", extra="local")
    transformers = need("transformers", extra="local")
    kind = precision(recipe)
    if recipe.eval_steps is not None:
        every: dict[str, Any] = {"save_strategy": "steps", "save_steps": recipe.eval_steps}
        validated = {"eval_strategy": "steps", "eval_steps": recipe.eval_steps}
    else:
        every = {"save_strategy": "epoch"}
        validated = {"eval_strategy": "epoch"}
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "greater_is_better": False}
    return transformers.TrainingArguments(
        output_dir=str(workspace),
        **recipe.training_arguments(),
        **every,
        **(validated | best if has_validation else {}),
        bf16=kind == "bf16",
        fp16=kind == "fp16",
        use_cpu=not torch.cuda.is_available(),
        save_total_limit=2,
        logging_steps=1,
        remove_unused_columns=False,
        report_to="none",
        disable_tqdm=True,
        data_seed=recipe.seed,
    )


def _callbacks(recipe: LocalRecipe, on_step: Callable[[Step], None], *, has_validation: bool) -> list[Any]:
    transformers = need("transformers", extra="local")

    class Teller(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
            if "loss" in logs or "eval_loss" in logs:
                told = Step(
                    state.global_step,
                    state.max_steps,
                    state.epoch or 0.0,
                    logs.get("loss"),
                    logs.get("eval_loss"),
                    logs.get("learning_rate"),
                )
                on_step(told)

    callbacks: list[Any] = [Teller()]
    if has_validation and recipe.early_stopping_patience is not None:
        callbacks.append(transformers.EarlyStoppingCallback(recipe.early_stopping_patience))
    return callbacks


def _count(model: Any) -> tuple[int, int]:
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, is_trained in sizes if is_trained)


def _set_threads(recipe: LocalRecipe, n_weights: int) -> None:
    torch = need("torch", extra="local")
    if recipe.num_threads is not None:
        torch.set_num_threads(recipe.num_threads)
    elif n_weights < _SMALL:
        torch.set_num_threads(1)  # for so little work threads wait for each other longer than they work


def _last_checkpoint(workspace: Path) -> str | None:
    """The newest checkpoint that is whole, None when there is none; what a killed process left is removed."""
    whole = []
    for path in workspace.glob("checkpoint-*"):
        try:
            json.loads((path / _WRITTEN_LAST).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            shutil.rmtree(path)
        else:
            whole.append((int(path.name.rpartition("-")[2]), str(path)))
    return max(whole)[1] if whole else None


def _padding(model: Any) -> int:
    """Any token will do: what is padding has no weight and is seen by nothing."""
    return model.config.pad_token_id or 0
