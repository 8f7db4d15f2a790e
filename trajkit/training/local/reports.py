"""Who else is told of every loss: Weights & Biases, or files that TensorBoard reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from trajkit._core.lazy import need
from trajkit.training.local.recipe import LocalRecipe

TENSORBOARD, WANDB = "tensorboard", "wandb"


def check_reports(recipe: LocalRecipe) -> None:
    """Raise unless those who are to be told can be.

    Raises:
        MissingExtra: Their package is not installed.
    """
    if recipe.report_to is not None:
        need(recipe.report_to, extra=recipe.report_to)


def reporters(recipe: LocalRecipe, folder: Path) -> list[Any]:
    """Callbacks for transformers' Trainer.

    Args:
        recipe: Says who.
        folder: The job's: files go into it, and its name is the run's.

    Raises:
        MissingExtra: Their package is not installed.
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
