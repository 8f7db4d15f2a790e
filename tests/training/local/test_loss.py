from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trajkit.training.local.loss import logits_of, weighted_loss
from trajkit.training.local.tokens.batch import SCHEMA, TokenRows, collate, pack, pack_rows


def all_of(rows: TokenRows) -> dict[str, Any]:
    return collate([rows[number] for number in range(len(rows))], padding=0)


def bins_of(table: pa.Table, capacity: int = 64) -> list[list[int]]:
    return pack([len(row) for row in table["input_ids"]], capacity)


def test_packed_rows_never_attend_to_each_other(make_model: Callable[[], Any], table: pa.Table) -> None:
    import torch

    model, bins = make_model(), bins_of(table)
    batch = all_of(TokenRows(table, bins))
    with torch.no_grad():
        packed = logits_of(model, batch)
        for line, rows in enumerate(bins):
            start = 0
            for row in rows:
                tokens = table["input_ids"][row].as_py()
                alone = model(input_ids=torch.tensor([tokens])).logits[0]
                assert (packed[line, start : start + len(tokens)] - alone).abs().max() < 1e-4
                start += len(tokens)
    assert any(len(rows) > 1 for rows in bins)


def test_packing_does_not_change_the_loss(make_model: Callable[[], Any], table: pa.Table) -> None:
    model = make_model()
    alone, packed = (weighted_loss(model, all_of(TokenRows(table, bins))) for bins in (None, bins_of(table)))
    assert packed.total.item() == pytest.approx(alone.total.item(), rel=1e-5)
    assert packed.weight.item() == pytest.approx(alone.weight.item(), rel=1e-6)


def fixed(probabilities: list[float]) -> Any:
    """A model that gives every token a probability of its own, whatever came before."""
    import torch
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=len(probabilities), hidden_size=2, intermediate_size=2, num_hidden_layers=1,
        num_attention_heads=1,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    model.lm_head = torch.nn.Linear(2, len(probabilities))
    with torch.no_grad():
        model.lm_head.weight.zero_()
        model.lm_head.bias.copy_(torch.tensor(probabilities).log())
    return model


def test_the_loss_is_the_weighted_mean_by_hand() -> None:
    table = pa.table({"input_ids": [[0, 1, 2], [1, 0]], "weights": [[9.0, 0.5, 0.0], [0.0, 2.0]]})
    loss = weighted_loss(fixed([0.5, 0.25, 0.25]), all_of(TokenRows(table)))
    # the first token of a row is told by nothing; 0.5 on a token of p 1/4, 2 on one of p 1/2
    assert loss.weight.item() == 2.5
    assert loss.total.item() == pytest.approx(0.5 * math.log(4) + 2 * math.log(2))


@pytest.mark.parametrize("family", ["Llama", "Gemma2"])  # Gemma 2 caps its logits after the output layer
def test_the_loss_in_pieces_is_that_of_all_logits(
    family: str, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=8, initializer_range=0.5,
    )  # fmt: skip
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    batch = all_of(TokenRows(table, bins_of(table)))
    batch["input_ids"] %= 64
    logits = logits_of(model, batch)[:, :-1].flatten(0, 1)
    every = torch.nn.functional.cross_entropy(logits, batch["input_ids"][:, 1:].flatten(), reduction="none")
    expected = (every * batch["weights"][:, 1:].flatten()).sum()
    expected.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    monkeypatch.setattr("trajkit.training.local.loss.LOGITS_AT_ONCE", 3 * 64)  # three tokens at a time
    found = weighted_loss(model, batch)
    found.total.backward()
    assert found.total.item() == pytest.approx(expected.item(), rel=1e-5)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-3, atol=1e-4)


def test_a_model_whose_training_is_over_takes_no_memory() -> None:
    model = fixed([0.5, 0.25, 0.25])
    weighted_loss(model, all_of(TokenRows(pa.table({"input_ids": [[0, 1]], "weights": [[0.0, 1.0]]}))))
    kept = weakref.ref(model)
    del model
    gc.collect()
    assert kept() is None


def test_accumulated_batches_are_divided_by_all_their_weights(
    make_trainer: Callable[..., Any], table: pa.Table
) -> None:
    rows = TokenRows(table)
    steps = {"max_steps": 1, "learning_rate": 1.0, "optim": "sgd", "max_grad_norm": 0.0}
    moved = []
    for name, size, accumulated in (("one", 8, 1), ("four", 2, 4)):
        trainer = make_trainer(
            rows, name, per_device_train_batch_size=size, gradient_accumulation_steps=accumulated, **steps
        )
        trainer.train()
        moved.append(trainer.model.lm_head.weight.detach().numpy())
    assert np.abs(moved[0] - moved[1]).max() < 1e-5


def test_the_validation_loss_is_over_tokens_and_not_over_batches(
    make_trainer: Callable[..., Any], make_model: Callable[[], Any], table: pa.Table
) -> None:
    import torch

    rows = TokenRows(table)
    with torch.no_grad():
        expected = weighted_loss(make_model(), all_of(rows))
    for size in (1, 7):
        found = make_trainer(rows, per_device_eval_batch_size=size).evaluate()["eval_loss"]
        assert found == pytest.approx((expected.total / expected.weight).item(), rel=1e-5)


def test_a_batch_without_any_weight_teaches_nothing(make_trainer: Callable[..., Any]) -> None:
    table = pa.table({"input_ids": [[1, 2, 3]] * 4, "weights": [[0.0] * 3] * 4})
    trainer = make_trainer(TokenRows(table), max_steps=1, optim="sgd", learning_rate=1.0)
    before = trainer.model.lm_head.weight.detach().clone()
    trainer.train()
    assert (trainer.model.lm_head.weight == before).all()


ALIKE = ([1, 2, 3, 4, 5], [1, 2, 3, 6], [1, 2, 3, 4, 5, 7, 8], [9, 2, 3], [1, 2, 3, 4, 5], [1, 2])
"""Rows of which one is another's beginning, two are the same, and one begins in its own way."""


def test_rows_that_begin_alike_are_one_tree(make_model: Callable[[], Any]) -> None:
    import torch

    random = np.random.default_rng(1)
    weights = [random.uniform(0, 2, len(row)) * (random.random(len(row)) < 0.7) for row in ALIKE]
    table = pa.table({"input_ids": list(ALIKE), "weights": weights}, schema=SCHEMA)
    alone, model = all_of(TokenRows(table)), make_model()
    rows = TokenRows(table, pack_rows(TokenRows(table), 12, shares=True))
    together = collate([rows[number] for number in range(len(rows))], padding=0, shares=True)
    assert together["input_ids"].shape == (1, 11)  # 25 tokens, and 11 that differ
    found = []
    for batch in (alone, together):
        model.zero_grad()
        loss = weighted_loss(model, batch)
        loss.total.backward()
        found.append((loss, [parameter.grad.clone() for parameter in model.parameters()]))
    (apart, gradients), (shared, same) = found
    assert shared.total.item() == pytest.approx(apart.total.item(), rel=1e-5)
    assert shared.weight.item() == pytest.approx(apart.weight.item(), rel=1e-6)
    for one, other in zip(gradients, same, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)
