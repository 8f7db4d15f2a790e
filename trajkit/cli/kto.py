"""`trajkit kto`: tune a model on answers that are good or bad."""

from __future__ import annotations

import click

from trajkit.cli.training import Targets

TARGETS = {"local": ("kto_local", "Tune a model on this machine: LoRA with TRL's KTOTrainer.")}


@click.group(cls=Targets, targets=TARGETS)
def kto() -> None:
    """Tune a model on answers that are good or bad: Kahneman-Tversky optimisation."""
