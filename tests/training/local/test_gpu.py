"""What only a GPU can show. Skipped without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trajkit.training.local.loss import weighted_loss
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.tokens.batch import SCHEMA, TokenRows, collate, pack_rows
from trajkit.training.local.train import train

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

VOCABULARY, CAPACITY = 512, 256


def llama() -> Any:
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=256, intermediate_size=512, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=64, initializer_range=0.05,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def rows_of(n_episodes: int = 6, n_steps: int = 5) -> TokenRows:
    """Steps that share instructions and history, and answers that follow from them."""
    random = np.random.default_rng(0)
    tokens, weights = [], []
    system = random.integers(VOCABULARY, size=20)
    for _ in range(n_episodes):
        history = np.concatenate([system, random.integers(VOCABULARY, size=15 * n_steps)])
        for step in range(1, n_steps + 1):
            seen = history[: 20 + 15 * step]
            row = np.concatenate([seen, (seen[-8:] + 1) % VOCABULARY]).astype(np.int32)
            tokens.append(row)
            weights.append((np.arange(len(row)) >= len(row) - 8).astype(np.float32))
    return TokenRows(pa.table({"input_ids": tokens, "weights": weights}, schema=SCHEMA))


def loss_and_gradients(model: Any, rows: TokenRows, **how: Any) -> tuple[float, list[Any]]:
    batch = collate([rows[number] for number in range(len(rows))], padding=0, **how)
    model.zero_grad()
    loss = weighted_loss(model, {name: values.cuda() for name, values in batch.items()})
    (loss.total / loss.weight).backward()
    gradients = [each.grad.float().cpu() for each in model.parameters() if each.grad is not None]
    return float(loss.total / loss.weight), gradients


@pytest.mark.parametrize("has_checkpoints", [False, True])
def test_a_tree_of_rows_has_the_loss_and_gradients_of_rows_apart(has_checkpoints: bool) -> None:
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    model = llama().cuda().train()
    if has_checkpoints:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    rows = rows_of()
    together = rows.packed(pack_rows(rows, CAPACITY, shares=True))
    assert len(together) < len(pack_rows(rows, CAPACITY, shares=False))
    apart, gradients = loss_and_gradients(model, rows)
    shared, same = loss_and_gradients(model, together, shares=True, width=CAPACITY)
    assert shared == pytest.approx(apart, rel=1e-3)
    for one, other in zip(gradients, same, strict=True):
        assert (one - other).norm() <= 1e-2 * one.norm()


OPTIONS: dict[str, dict[str, Any]] = {
    "rows": {},
    "packed": {"packing": True},
    "checkpoints": {"packing": True, "gradient_checkpointing": True},
    "liger": {"packing": True, "use_liger_kernel": True},
    "compiled": {"packing": True, "torch_compile": True},
    "compiled checkpoints": {"packing": True, "torch_compile": True, "gradient_checkpointing": True},
    "4bit": {"packing": True, "load_in": "4bit", "optim": "paged_adamw_8bit"},
    "all weights": {"packing": True, "lora": None},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_training_learns(name: str, tmp_path: Path) -> None:
    pytest.importorskip({"liger": "liger_kernel", "4bit": "bitsandbytes"}.get(name, "torch"))
    llama().save_pretrained(tmp_path / "base")
    rows = rows_of()
    with pa.OSFile(str(tmp_path / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        writer.write_table(rows.table)
    base = {
        "num_train_epochs": 20,
        "per_device_train_batch_size": 4,
        "learning_rate": 5e-3,
        "max_length": CAPACITY,
    }
    losses: list[float] = []
    done = train(
        str(tmp_path / "base"),
        tmp_path / "rows.arrow",
        tmp_path / "tuned",
        LocalRecipe.model_validate(base | OPTIONS[name]),
        validation=tmp_path / "rows.arrow",
        workspace=tmp_path / "work",
        on_step=lambda step: losses.append(step.loss) if step.loss is not None else None,
    )
    assert done.eval_loss is not None
    assert done.eval_loss < 0.8 * losses[0]
