"""`trajkit sft`: tune a model on the steps of a store, here or at a service."""

from __future__ import annotations

import click

from trajkit.cli.training import Targets

TARGETS = {
    "local": ("sft_local", "Tune a model on this machine: LoRA with transformers and peft."),
    "openai": ("sft_openai", "Tune a model at OpenAI, or at a service that speaks its fine-tuning API."),
    "together": ("sft_hosted", "Tune a model at Together."),
    "fireworks": ("sft_hosted", "Tune a model at Fireworks."),
}


@click.group(cls=Targets, targets=TARGETS)
def sft() -> None:
    """Tune a model on what the steps of a store did: supervised fine-tuning."""
