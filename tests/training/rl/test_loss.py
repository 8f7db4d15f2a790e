"""The loss of played steps, beside that of TRL on the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.matrix import daily
from tests.tiny import make_tiny
from trajkit.training.rl.loss import StepRow, collate, correction, policy_loss, scored
from trajkit.training.rl.recipe import RlRecipe, WorldRecipe
from trajkit.training.rl.round import _grown_together

PLAY = WorldRecipe(env="tests.training.rl.worlds:Letters", tasks=("default",), max_new_tokens=7)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    import torch
    import transformers

    torch.set_num_threads(1)
    folder = make_tiny(tmp_path_factory.mktemp("models") / "tiny")
    made: Any = transformers.AutoModelForCausalLM.from_pretrained(folder)
    return made.eval()


def batch_of(model: Any) -> tuple[list[StepRow], dict[str, Any]]:
    """Six rows of different lengths, with log-probabilities a little beside those of the model."""
    import torch

    random = np.random.default_rng(0)
    rows = [
        StepRow(
            random.integers(0, 250, size).tolist(), random.integers(0, 250, answer).tolist(), [0.0] * answer
        )
        for size, answer in [(5, 3), (9, 1), (4, 7), (12, 5), (6, 2), (7, 7)]
    ]
    batch = collate(rows, padding=0, device="cpu")
    with torch.no_grad():
        logps = scored(model, batch, temperature=1.3).logps
    noise = torch.from_numpy(random.normal(0, 0.3, (3, *logps.shape)).astype(np.float32))
    batch |= {
        "old": logps + noise[0],
        "reference": logps + noise[1],
        "sampled": logps + noise[0] + noise[2],
        "advantage": torch.from_numpy(random.normal(0, 1, len(rows)).astype(np.float32)),
    }
    return rows, batch


def theirs(
    model: Any, rows: list[StepRow], batch: dict[str, Any], weight: Any, folder: Path, **options: Any
) -> Any:
    """The loss of TRL's GRPOTrainer, on the advantages and log-probabilities that it is given."""
    from datasets import Dataset

    trl: Any = pytest.importorskip("trl")

    trainer = trl.GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=trl.GRPOConfig(
            output_dir=str(folder),
            use_cpu=True,
            bf16=False,
            report_to="none",
            temperature=1.3,
            max_completion_length=PLAY.max_new_tokens,
            per_device_train_batch_size=len(rows),
            num_generations=2,
            activation_checkpointing=False,
            **options,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["x"] * 8}),
        processing_class=tokenizer(folder),
    )
    n = batch["mask"].shape[1]
    trainer.current_gradient_accumulation_steps = 1
    # how TRL weighs tokens that another program has drawn
    trainer.use_vllm, trainer.vllm_importance_sampling_correction = True, True
    trainer.model.train()
    return trainer._compute_loss(
        model,
        {
            "prompt_ids": batch["input_ids"][:, :-n],
            "prompt_mask": batch["attention_mask"][:, :-n],
            "completion_ids": batch["input_ids"][:, -n:],
            "completion_mask": batch["mask"].long(),
            "advantages": batch["advantage"][:, None].expand(-1, n),
            "old_per_token_logps": batch["old"],
            "ref_per_token_logps": batch["reference"],
            "importance_sampling_ratio": weight,
            "num_items_in_batch": batch["mask"].sum(),
        },
    )


def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    made = AutoTokenizer.from_pretrained(make_tiny(folder / "tokenizer"))
    made.pad_token = made.eos_token
    return made


@pytest.mark.parametrize("loss_type", daily(["grpo", "bnpo", "dr_grpo", "cispo"], 2))
def test_the_loss_and_its_gradient_are_those_of_trl(model: Any, tmp_path: Path, loss_type: str) -> None:
    import torch

    high = 5.0 if loss_type == "cispo" else 0.28
    recipe = RlRecipe(
        play=PLAY, loss_type=loss_type, beta=0.04, entropy_coef=0.01, epsilon=0.2, epsilon_high=high
    )
    rows, batch = batch_of(model)
    batch["weight"], _ = correction(batch["old"], batch["sampled"], batch["mask"], recipe)
    model.zero_grad()
    ours = policy_loss(
        scored(model, batch, temperature=1.3),
        batch,
        recipe,
        n_rows=len(rows),
        n_tokens=float(batch["mask"].sum()),
    ).total
    ours.backward()
    gradient = torch.cat([each.grad.flatten() for each in model.parameters()])
    model.zero_grad()
    same = {"beta": 0.04, "entropy_coef": 0.01, "epsilon": 0.2, "epsilon_high": high}
    loss = theirs(model, rows, batch, batch["weight"], tmp_path, loss_type=loss_type, **same)
    loss.backward()
    wanted = torch.cat([each.grad.flatten() for each in model.parameters()])
    assert ours.item() == pytest.approx(loss.item(), abs=1e-6)
    assert (gradient - wanted).abs().max().item() < 1e-6
    assert wanted.abs().max().item() > 1e-3


def test_tokens_that_were_drawn_by_another_distribution_are_weighted_or_left_out() -> None:
    import torch

    old = torch.log(torch.tensor([[0.5, 0.6, 0.1, 0.5]]))
    sampled = torch.log(torch.tensor([[0.5, 0.2, 0.4, 0.4]]))  # ratios 1, 3, 1/4 and 5/4
    mask = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    weight, capped = correction(old, sampled, mask, RlRecipe(play=PLAY, importance="token_truncate"))
    assert weight.tolist() == [pytest.approx([1, 2, 0.25, 0])]
    assert capped.tolist() == [[False, True, False, False]]
    weight, capped = correction(old, sampled, mask, RlRecipe(play=PLAY, importance="token_mask"))
    assert weight.tolist() == [pytest.approx([1, 0, 0, 0])]
    assert capped.tolist() == [[False, True, True, False]]
    weight, capped = correction(old, sampled, mask, RlRecipe(play=PLAY, importance="none"))
    assert weight.tolist() == [[1, 1, 1, 0]]
    assert not capped.any()


def test_a_batch_cut_in_two_adds_up_to_the_same_loss(model: Any) -> None:
    recipe = RlRecipe(play=PLAY, beta=0.1, entropy_coef=0.1)
    rows, batch = batch_of(model)
    batch["weight"] = batch["mask"]
    size: dict[str, Any] = {"n_rows": len(rows), "n_tokens": float(batch["mask"].sum())}
    whole = policy_loss(scored(model, batch, temperature=1.0), batch, recipe, **size).total
    n_prompt = batch.pop("n_prompt")
    halves = [
        {name: each[part] for name, each in batch.items()} | {"n_prompt": n_prompt}
        for part in (slice(0, 2), slice(2, 6))
    ]
    halves[1]["sequence"] = halves[1]["sequence"] - 2  # each row is a sequence of its own
    parts = [policy_loss(scored(model, half, temperature=1.0), half, recipe, **size).total for half in halves]
    assert sum(part.item() for part in parts) == pytest.approx(whole.item(), abs=1e-6)


def test_a_conversation_that_grows_is_one_sequence_with_the_same_loss(model: Any) -> None:
    import torch

    random = np.random.default_rng(1)
    talk: list[int] = random.integers(0, 250, 6).tolist()
    rows: list[StepRow] = []
    for n in (3, 1, 4):
        answer = random.integers(0, 250, n).tolist()
        rows.append(StepRow(talk, answer, random.normal(-3, 0.1, n).tolist()))
        talk = [*talk, *answer, *random.integers(0, 250, 2).tolist()]
    rows.append(StepRow(random.integers(0, 250, 9).tolist(), [5, 6], [-3.0, -3.0]))
    head = torch.nn.Linear(model.config.hidden_size, 1)
    recipe = RlRecipe(play=PLAY, algorithm="ppo", beta=0.1)

    def learned(batches: list[list[int]]) -> tuple[list[torch.Tensor], float, torch.Tensor, int]:
        model.zero_grad()
        logps, total, n_sequences = [], 0.0, 0
        for places in batches:
            batch = collate([rows[place] for place in places], padding=0, device="cpu")
            n_sequences += len(batch["input_ids"])
            found = scored(model, batch, temperature=1.3, value_head=head)
            logps += [line[: len(rows[at].completion)] for at, line in zip(places, found.logps, strict=True)]
            batch |= {
                "old": batch["sampled"],
                "reference": batch["sampled"],
                "weight": batch["mask"],
                "advantage": torch.tensor([(-1.0) ** place for place in places]),
                "target": torch.tensor([float(place) for place in places]),
            }
            loss = policy_loss(found, batch, recipe, n_rows=len(rows), n_tokens=10.0).total
            loss.backward()
            total += loss.item()
        return logps, total, torch.cat([each.grad.flatten() for each in model.parameters()]), n_sequences

    longest = len(rows[2].prompt) + 4
    assert _grown_together(rows) == [(longest, 0), (longest, 1), (longest, 2), (11, 3)]
    logps, loss, gradient, n_alone = learned([[0], [1], [2], [3]])
    together, same, alike, n_grown = learned([[0, 1, 2, 3]])
    assert (n_alone, n_grown) == (4, 2)
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(logps, together, strict=True))
    assert same == pytest.approx(loss, abs=1e-5)
    assert (alike - gradient).abs().max().item() < 1e-5
    assert gradient.abs().max().item() > 1e-3
