"""What every trainer here is told alike: when to measure and to keep, how precisely, and who hears of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from trajkit._core.lazy import need
from trajkit.training.local.base_model import precision
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.reports import reporters
from trajkit.training.step import Step


def arguments_of(
    recipe: LocalRecipe, workspace: Path, *, has_validation: bool, most: str | None = None
) -> dict[str, Any]:
    """Arguments of transformers' TrainingArguments, and so of TRL's too.

    Args:
        recipe: How.
        workspace: Folder for checkpoints.
        has_validation: Something measures on the way; the best checkpoint is kept then.
        most: What the best checkpoint has most of; None for the lowest validation loss.
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
    """The mean over all steps of a training; the trainer's own is over those of its last process."""
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
    """Who is told of losses, and what stops early.

    Args:
        recipe: How.
        workspace: Folder for checkpoints, in that of the job.
        on_step: Told of every loss.
        has_validation: Something measures on the way.
        on_logs: Told all that is logged with a loss, and after how many steps.
    """
    transformers = need("transformers", extra="local")

    class Teller(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
            if not state.is_world_process_zero or not ("loss" in logs or "eval_loss" in logs):
                return
            told: dict[str, Any] = {name: logs.get(name) for name in ("loss", "eval_loss", "learning_rate")}
            on_step(Step(state.global_step, state.max_steps, state.epoch or 0.0, **told))
            on_logs(logs, state.global_step)

    callbacks: list[Any] = [Teller(), *reporters(recipe, workspace.parent)]
    if has_validation and recipe.early_stopping_patience is not None:
        callbacks.append(transformers.EarlyStoppingCallback(recipe.early_stopping_patience))
    return callbacks
