"""`trajkit dpo`: tune a model on pairs of a better and a worse answer."""

from __future__ import annotations

import click

from trajkit.cli.training import Targets

TARGETS = {
    "local": ("dpo_local", "Tune a model on this machine: LoRA with TRL's DPOTrainer."),
    "openai": ("dpo_openai", "Tune a model at OpenAI, or at a service that speaks its fine-tuning API."),
    "together": ("dpo_hosted", "Tune a model at Together."),
    "fireworks": ("dpo_hosted", "Tune a model at Fireworks."),
}


@click.group(cls=Targets, targets=TARGETS)
def dpo() -> None:
    """Tune a model on pairs of a better and a worse answer: direct preference optimisation."""
