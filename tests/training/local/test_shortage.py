"""Memory and disk that run out for real, in processes that may have little of them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.tiny import make_tiny
from trajkit.errors import TrainingError
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.training.local.preferences.recipe import KtoRecipe
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.running.attempt import halved, out_of_memory
from trajkit.training.local.tokens.tokenised import Limit, tokenise

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and 64 rows of about 500 tokens."""
    made = tmp_path_factory.mktemp("shortage")
    base = make_tiny(made / "base")
    row = {
        "messages": [{"role": "user", "content": "x" * 500}, {"role": "assistant", "content": "go"}],
        "weights": [1.0],
    }
    (made / "rows.jsonl").write_text((json.dumps(row) + "\n") * 64)
    tokenise(made / "rows.jsonl", made / "rows.arrow", ChatTemplate(base), limit=Limit(2048, ""))
    return made


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, dict[str, Any]]:
    """What trainings say with 200 MB more than the libraries take, and with no file above 100 kB."""
    if not sys.platform.startswith("linux"):
        pytest.skip("RLIMIT_AS holds on Linux only")
    told = folder / "told"
    told.touch()
    streams = ("/dev/null", str(told), str(told))
    process = warm.Forked("tests.training.local.short_of_memory", [str(folder)], ROOT, os.environ, streams)
    assert process.wait() == 0, told.read_text()[-2000:]
    said: dict[str, dict[str, Any]] = json.loads((folder / "found.json").read_text())
    return said


@pytest.mark.full
def test_memory_that_runs_out_names_what_to_change(found: dict[str, dict[str, Any]]) -> None:
    assert found["memory"]["error"] == "out of memory with batches of 64 rows"
    smaller = "--per-device-train-batch-size 32 --gradient-accumulation-steps 2"
    assert found["memory"]["hint"].startswith(f"--auto-batch, or {smaller}; or --set gradient_checkpointing")


@pytest.mark.full
def test_auto_batch_halves_the_batch_and_goes_on(found: dict[str, dict[str, Any]]) -> None:
    spared = found["spared"]
    assert spared["n_steps"] == 2
    size = spared["per_device_train_batch_size"]
    assert size in (32, 16, 8, 4)
    last = f"out of memory: resuming with batches of {size}, {64 // size} per step"
    assert spared["told"][-1] == last


@pytest.mark.full
def test_a_disk_that_is_full_says_where_and_how_to_go_on(
    found: dict[str, dict[str, Any]], folder: Path
) -> None:
    place = folder / "work-disk"
    assert found["disk"]["error"].startswith(f"{place} cannot be written, with ")
    assert "trajkit jobs resume" in found["disk"]["hint"]
    assert list(place.glob("checkpoint-*")) == []  # half of one is of no use to anybody


@pytest.mark.parametrize(("size", "n_batches", "halves"), [(8, 1, (4, 2)), (6, 1, (3, 2)), (5, 2, (2, 5))])
def test_the_rows_of_a_step_stay_as_many(size: int, n_batches: int, halves: tuple[int, int]) -> None:
    recipe = LocalRecipe(per_device_train_batch_size=size, gradient_accumulation_steps=n_batches)
    smaller = halved(recipe)
    assert smaller is not None
    assert (smaller.per_device_train_batch_size, smaller.gradient_accumulation_steps) == halves


def test_a_batch_of_one_cannot_be_halved() -> None:
    one = LocalRecipe(per_device_train_batch_size=1, gradient_checkpointing=True)
    assert halved(one) is None
    error = out_of_memory(one)
    assert isinstance(error, TrainingError)
    assert error.message == "out of memory with batches of 1 row"


def test_a_batch_of_kto_keeps_two_answers_to_compare() -> None:
    assert halved(KtoRecipe(per_device_train_batch_size=2, per_device_eval_batch_size=2)) is None
    smaller = halved(KtoRecipe(per_device_train_batch_size=5, per_device_eval_batch_size=2))
    assert smaller is None, "a fifth of a batch would be one answer"
    alone = halved(KtoRecipe(loss_type="apo_zero_unpaired", per_device_train_batch_size=2))
    assert alone is not None
    assert alone.per_device_train_batch_size == 1
