"""Report losses to Weights & Biases or TensorBoard."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from trajkit._core.lazy import need
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
