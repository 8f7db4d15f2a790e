"""The tiny base model with two adapters that say something else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters import make_adapter
from trajkit.models.generation.model import LocalModel

BASE = "sample:tiny-base"


@pytest.fixture(scope="session")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("adapters")
    return {name: make_adapter(BASE, folder / name, seed=seed) for seed, name in enumerate(("one", "two"))}


@pytest.fixture(scope="session")
def model(adapters: dict[str, str]) -> Iterator[LocalModel]:
    made = LocalModel.open(BASE, adapters=adapters, name="base")
    made.use_threads(1)
    yield made
    made.close()


@pytest.fixture
def fresh(model: LocalModel) -> LocalModel:
    """The model with nothing kept of earlier prompts."""
    model.forget()
    return model


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose positions are learned, so that a wrong one changes what it says."""
    import torch
    import transformers

    from tests.tiny import byte_tokenizer

    folder = tmp_path_factory.mktemp("models") / "gpt2"
    byte_tokenizer(folder, "{% for m in messages %}{{ m.content }}{% endfor %}")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=257, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():  # louder than it is at its beginning: what is likely depends on the prompt
        for parameter in model.parameters():
            parameter.mul_(8 if parameter.dim() > 1 else 1)
    model.save_pretrained(folder)
    return folder
