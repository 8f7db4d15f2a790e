"""Adapters for tests: of random weights, so that they change what a model says."""

from __future__ import annotations

from pathlib import Path

from trajkit._core.samples import model_path
from trajkit.models.generation.weights import old_names


def make_adapter(base: str, folder: Path, *, seed: int = 0, loudness: float = 0.6) -> str:
    """Write an adapter to a model into a folder, and name that.

    Args:
        base: A model's folder, or `sample:tiny-base`.
        folder: Where it goes.
        seed: Another one says something else.
        loudness: How much it changes.
    """
    import peft
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(model_path(base))
    torch.manual_seed(seed)
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj", "down_proj"], r=4)
    with old_names():
        made = peft.get_peft_model(model, config)
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=loudness)
    made.save_pretrained(folder)
    return str(folder)
