from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.matrix import daily
from trajkit.errors import DataError, RequestError
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.training.job import Step
from trajkit.training.local.recipe import LocalRecipe, LoraRecipe
from trajkit.training.local.tokens.batch import buckets
from trajkit.training.local.tokens.tokenised import Limit, open_tokens, tokenise
from trajkit.training.local.train import train


def conversation(*turns: str, weights: tuple[float, ...] | None = None) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    return {"messages": messages, "weights": list(weights or (1.0,) * (len(turns) // 2))}


@pytest.fixture
def tokenizer(base: str) -> ChatTemplate:
    return ChatTemplate(base)


@pytest.fixture
def tokens(tmp_path: Path, tokenizer: ChatTemplate) -> Callable[..., Path]:
    """Write rows and make tokens of them."""

    def make(*rows: dict[str, Any], name: str = "train", max_length: int = 64) -> Path:
        lines = tmp_path / f"{name}.jsonl"
        lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
        tokenise(lines, tmp_path / f"{name}.arrow", tokenizer, limit=Limit(max_length, ""))
        return tmp_path / f"{name}.arrow"

    return make


ROWS = [conversation(f"say {word}: ", word) for word in ("ant", "bee", "cat", "dog")] * 4


def test_only_answers_have_weights_and_their_ends_too(tokens: Callable[..., Path]) -> None:
    path = tokens(conversation("hi", "yo", "and", "so", weights=(0.5, 2.0)))
    (row,) = open_tokens(path).table.to_pylist()
    assert row["weights"] == [0, 0, 0.5, 0.5, 0.5, 0, 0, 0, 2, 2, 2]


def test_decoded_labels_are_the_answers(tokens: Callable[..., Path], tokenizer: ChatTemplate) -> None:
    path = tokens(conversation("a question? ", "the answer", "more? ", "no more", weights=(1.0, 0.0)))
    (row,) = open_tokens(path).table.to_pylist()
    learned = [token for token, weight in zip(row["input_ids"], row["weights"], strict=True) if weight]
    from transformers import AutoTokenizer

    assert AutoTokenizer.from_pretrained(tokenizer.name).decode(learned) == "the answer<|im_end|>"


def test_a_row_that_is_too_long_is_never_cut(tokens: Callable[..., Path], tmp_path: Path) -> None:
    rows = [conversation("x" * 100, "y")] * 5
    with pytest.raises(
        DataError, match=r"5 rows are longer than 64 tokens: line 1: 102 tokens; .* and 2 more"
    ):
        tokens(*rows)
    assert not (tmp_path / "train.arrow").exists()


@pytest.mark.parametrize("lora", daily([LoraRecipe(), None], 1))
def test_training_learns_what_it_is_shown(
    tokens: Callable[..., Path], base: str, tmp_path: Path, lora: LoraRecipe | None
) -> None:
    import torch
    import transformers

    steps: list[Step] = []
    n_steps = 80 if lora is None else 30
    plan = {"max_steps": n_steps, "learning_rate": 1e-2, "per_device_train_batch_size": 16, "warmup_steps": 0}
    recipe = LocalRecipe.model_validate({**plan, "lora": lora})
    path = tokens(*ROWS)
    done = train(base, path, tmp_path / "out", recipe, workspace=tmp_path / "work", on_step=steps.append)
    assert done.n_steps == steps[-1].n_done == steps[-1].n_total == n_steps
    first, last = steps[0].loss, steps[-1].loss
    assert first is not None
    assert last is not None
    if lora is not None:  # beside weights of no meaning an adapter can do little
        assert last < first - 0.1
        assert done.n_trainable < done.n_weights
        assert (tmp_path / "out" / "adapter_model.safetensors").is_file()
        return
    assert last < 0.1 < 5 < first
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    row = open_tokens(path).table["input_ids"][2].as_py()
    said = model.generate(input_ids=torch.tensor([row[:9]]), max_new_tokens=4, do_sample=False)
    assert said[0].tolist() == row


@pytest.mark.parametrize("options", daily([{"packing": True}, {"group_by_length": True}, {}], 1))
def test_a_training_that_was_killed_goes_on_to_the_same_adapter(
    tokens: Callable[..., Path],
    base: str,
    tmp_path: Path,
    options: dict[str, Any],
) -> None:
    from safetensors.numpy import load_file

    path = tokens(*[conversation("count: " * n, "1 2 3"[:n]) for n in (1, 2, 3, 4) for _ in range(4)])
    recipe = LocalRecipe(num_train_epochs=4, per_device_train_batch_size=2, learning_rate=1e-2, **options)
    whole = train(base, path, tmp_path / "whole", recipe, workspace=tmp_path / "work-1")

    def kill(step: Step) -> None:
        if step.n_done > whole.n_steps // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(base, path, tmp_path / "again", recipe, workspace=tmp_path / "work-2", on_step=kill)
    assert not (tmp_path / "again").exists()
    # as a process leaves them that is killed while it writes: without the last file, or with half of it
    for number, text in ((900, None), (901, '{"epoch": ')):
        (tmp_path / "work-2" / f"checkpoint-{number}").mkdir()
        if text is not None:
            (tmp_path / "work-2" / f"checkpoint-{number}" / "trainer_state.json").write_text(text)
    again = train(base, path, tmp_path / "again", recipe, workspace=tmp_path / "work-2")
    assert again.n_steps == whole.n_steps
    assert again.train_loss == pytest.approx(whole.train_loss, rel=1e-4)  # not of the second half
    ours, theirs = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("again", "whole"))
    assert ours.keys() == theirs.keys()
    assert all(np.abs(ours[name] - theirs[name]).max() < 1e-5 for name in ours)


def test_the_best_validation_is_what_is_kept(tokens: Callable[..., Path], base: str, tmp_path: Path) -> None:
    steps: list[Step] = []
    held_out = [conversation(f"say {word}: ", word) for word in ("zzz", "qqq")]
    recipe = LocalRecipe(
        num_train_epochs=40, learning_rate=5e-2, per_device_train_batch_size=16, early_stopping_patience=3
    )
    done = train(
        base,
        tokens(*ROWS),
        tmp_path / "out",
        recipe,
        validation=tokens(*held_out, name="val"),
        workspace=tmp_path / "work",
        on_step=steps.append,
    )
    losses = {step.n_done: step.eval_loss for step in steps if step.eval_loss is not None}
    assert done.best_step is not None
    assert done.eval_loss == min(losses.values()) == losses[done.best_step]
    assert done.was_stopped_early
    assert done.n_steps == done.best_step + 3 < 40


def test_a_whole_model_can_be_trained(tokens: Callable[..., Path], base: str, tmp_path: Path) -> None:
    recipe = LocalRecipe(lora=None, max_steps=1)
    done = train(base, tokens(*ROWS), tmp_path / "out", recipe, workspace=tmp_path / "work")
    assert done.n_trainable == done.n_weights
    assert (tmp_path / "out" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("folder", "recipe", "message"),
    [
        (None, {"lora": LoraRecipe(target_modules=("nothing_like_it",))}, "nothing_like_it"),
        (None, {"load_in": "4bit"}, "needs a GPU"),
        ("empty", {}, "no model in"),
    ],
)
def test_what_cannot_be_done_is_said(
    tokens: Callable[..., Path],
    base: str,
    tmp_path: Path,
    folder: str | None,
    recipe: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "empty").mkdir()
    model = base if folder is None else str(tmp_path / folder)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(RequestError, match=message):
        train(model, tokens(*ROWS), tmp_path / "out", LocalRecipe(**recipe), workspace=tmp_path / "work")


def test_buckets_keep_lengths_together_and_every_row_once() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 1000)
    order = buckets(lengths, 8, [0, 0])
    assert sorted(order) == list(range(1000))
    spread = [np.ptp(lengths[order[start : start + 8]]) for start in range(0, 1000, 8)]
    assert np.mean(spread) < 5
    assert order == buckets(lengths, 8, [0, 0]) != buckets(lengths, 8, [0, 1])
    assert lengths[order[0]] == lengths.max()
