"""A model of a few thousand weights, and rows of random tokens."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.tiny import make_tiny
from trajkit.training.local.tokens.batch import SCHEMA, TokenRows, collate
from trajkit.training.local.train import trainer_class

VOCABULARY = 64


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a model of random weights, with its tokenizer; nothing changes it."""
    return make_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def make_model() -> Callable[[], Any]:
    """A Llama that is the same every time."""

    def make() -> Any:
        import torch
        import transformers

        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=128,
        )
        return transformers.LlamaForCausalLM(config).eval()

    return make


@pytest.fixture
def table() -> pa.Table:
    """Forty rows of 3 to 29 tokens with weights between 0 and 2, a third of them 0."""
    random = np.random.default_rng(0)
    rows = [random.integers(0, VOCABULARY, size=size).tolist() for size in random.integers(3, 30, size=40)]
    weights = [(random.uniform(0, 2, len(row)) * (random.random(len(row)) > 1 / 3)).tolist() for row in rows]
    return pa.table({"input_ids": rows, "weights": weights}, schema=SCHEMA)


@pytest.fixture
def make_trainer(tmp_path: Path, make_model: Callable[[], Any]) -> Callable[..., Any]:
    """A trainer on the processor."""

    def make(rows: TokenRows, folder: str = "out", **options: Any) -> Any:
        import transformers

        given = {
            "output_dir": str(tmp_path / folder),
            "use_cpu": True,
            "bf16": False,
            "report_to": "none",
            "remove_unused_columns": False,
            "disable_tqdm": True,
            "logging_strategy": "no",
            "save_strategy": "no",
            "learning_rate": 1e-2,
            "seed": 1,
            **options,
        }
        return trainer_class()(
            model=make_model(),
            args=transformers.TrainingArguments(**given),
            train_dataset=rows,
            eval_dataset=rows,
            data_collator=functools.partial(collate, padding=0),
        )

    return make
