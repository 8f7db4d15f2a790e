"""Arguments, checks and callbacks that all trainers share: validation, checkpoints, precision, reports."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trajkit._core.lazy import need
from trajkit.errors import RequestError
from trajkit.training.job import Step
from trajkit.training.local.base_model import precision
from trajkit.training.local.recipe import LocalRecipe

TENSORBOARD, WANDB = "tensorboard", "wandb"


def check_reports(recipe: LocalRecipe) -> None:
    """Check that the package of `report_to` is installed.

    Raises:
        MissingExtra: It is not installed.
    """
    if recipe.report_to is not None:
        need(recipe.report_to, extra=recipe.report_to)


def reporters(recipe: LocalRecipe, folder: Path) -> list[Any]:
    """Return callbacks for transformers' Trainer.

    Args:
        recipe: Names the service.
        folder: The job's folder, for files; its name becomes the run's name.

    Raises:
        MissingExtra: The service's package is not installed.
    """
    check_reports(recipe)
    integrations = need("transformers.integrations", extra="local")
    if recipe.report_to == TENSORBOARD:
        writer = need("torch.utils.tensorboard", extra=TENSORBOARD).SummaryWriter(folder / TENSORBOARD)
        return [integrations.TensorBoardCallback(writer)]
    if recipe.report_to == WANDB:
        os.environ.setdefault("WANDB_PROJECT", "trajkit")
        os.environ.setdefault("WANDB_DIR", str(folder))
        os.environ.setdefault("WANDB_NAME", folder.name)
        return [integrations.WandbCallback()]
    return []


def arguments_of(
    recipe: LocalRecipe, workspace: Path, *, has_validation: bool, most: str | None = None
) -> dict[str, Any]:
    """Return arguments for transformers' TrainingArguments, and so for TRL's.

    Args:
        recipe: Settings of the training.
        workspace: Folder for checkpoints.
        has_validation: Validate during training, and keep the best checkpoint.
        most: Metric that the best checkpoint maximises; None for the lowest validation loss.
    """
    torch = need("torch", extra="local")
    kind = precision(recipe)
    when: dict[str, Any] = {"save_strategy": "epoch"}
    if recipe.eval_steps is not None:
        when = {"save_strategy": "steps", "save_steps": recipe.eval_steps}
    if has_validation:
        when |= {
            "eval_strategy": when["save_strategy"],
            "eval_steps": recipe.eval_steps,
            "load_best_model_at_end": True,
            "metric_for_best_model": f"eval_{most or 'loss'}",
            "greater_is_better": most is not None,
        }
    return {
        "output_dir": str(workspace),
        **recipe.training_arguments(),
        **when,
        "bf16": kind == "bf16",
        "fp16": kind == "fp16",
        "use_cpu": not torch.cuda.is_available(),
        "save_total_limit": 2,
        "logging_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "data_seed": recipe.seed,
    }


def mean_loss(log_history: list[dict[str, Any]]) -> float:
    """Return the mean loss over all steps; the trainer's own covers only the steps of its last process."""
    losses: list[float] = [entry["loss"] for entry in log_history if "loss" in entry]
    return sum(losses) / max(1, len(losses))


def callbacks_of(
    recipe: LocalRecipe,
    workspace: Path,
    on_step: Callable[[Step], None],
    *,
    has_validation: bool,
    on_logs: Callable[[dict[str, Any], int], object] = lambda logs, n_done: None,
) -> list[Any]:
    """Return callbacks for reports and early stopping.

    Args:
        recipe: Settings of the training.
        workspace: Folder for checkpoints, inside the job's folder.
        on_step: Called with every loss.
        has_validation: There is validation during training.
        on_logs: Called with everything that is logged with a loss, and the number of steps.
    """
    transformers = need("transformers", extra="local")

    class Teller(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
            if not state.is_world_process_zero or not ("loss" in logs or "eval_loss" in logs):
                return
            values: dict[str, Any] = {name: logs.get(name) for name in ("loss", "eval_loss", "learning_rate")}
            on_step(Step(state.global_step, state.max_steps, state.epoch or 0.0, **values))
            on_logs(logs, state.global_step)

    callbacks: list[Any] = [Teller(), *reporters(recipe, workspace.parent)]
    if has_validation and recipe.early_stopping_patience is not None:
        callbacks.append(transformers.EarlyStoppingCallback(recipe.early_stopping_patience))
    return callbacks


def check_optimizer(recipe: LocalRecipe) -> None:
    """Check that this machine has the optimizer of a recipe.

    Raises:
        RequestError: There is no such optimizer, or it needs a GPU.
        MissingExtra: Its package is not installed.
    """
    known = [str(name.value) for name in need("transformers.training_args", extra="local").OptimizerNames]
    if recipe.optim not in known:
        raise RequestError(f"no optimizer {recipe.optim!r}", hint=f"optim: {', '.join(known)}")
    if "8bit" in recipe.optim or "paged" in recipe.optim or "bnb" in recipe.optim:
        if not need("torch", extra="local").cuda.is_available():
            raise RequestError(f"the optimizer {recipe.optim} needs a GPU", hint="--set optim=adamw_torch")
        need("bitsandbytes", extra="cuda")
