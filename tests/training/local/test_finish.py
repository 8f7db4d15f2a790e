"""What a job leaves beside its weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.browser import DESKTOP, PHONE, browser, opened
from tests.matrix import daily
from trajkit.models.generation.old_names import old_names
from trajkit.schema import Episode, Transition, message
from trajkit.store.writer import write_episodes
from trajkit.training.job import JobData, JobStatus, TuneJob
from trajkit.training.local.outcome.finish import take_wishes
from trajkit.training.local.outcome.loss_page import write_loss_page
from trajkit.training.local.prepare import LocalRequest, Prepared, prepare
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.running.worker import work
from trajkit.training.runs import Runs

QUICK = LocalRecipe(
    num_train_epochs=2, per_device_train_batch_size=4, learning_rate=5e-2, report_to="tensorboard"
)


def episode(name: str) -> Episode:
    steps = [
        Transition(
            step_index=i,
            messages=(message("user", f"turn {i} of {name}: "),),
            completion=message("assistant", "go"),
            function_name="act",
            variant_name="history",
        )
        for i in range(3)
    ]
    return Episode(episode_id=name, source="test", steps=tuple(steps))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    write_episodes(folder / "train", [episode(f"e{n}") for n in range(8)], kind="test")
    write_episodes(folder / "val", [episode(f"v{n}") for n in range(2)], kind="test")
    return folder


def request(base: str, stores: Path, **options: Any) -> LocalRequest:
    given = {"train": stores / "train", "validation": stores / "val", "recipe": QUICK, **options}
    return LocalRequest(base=base, **given)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, base: str, stores: Path) -> tuple[Runs, Prepared]:
    """A job that was trained in this process, its merged model too."""
    runs = Runs(tmp_path_factory.mktemp("work") / "runs")
    merged = QUICK.model_copy(update={"merge": True})
    prepared = prepare(request(base, stores, recipe=merged), runs)
    assert work(runs, prepared.job.job_id) == 0
    return runs, prepared


def folder_of(done: tuple[Runs, Prepared]) -> Path:
    runs, prepared = done
    return runs.path(prepared.job.job_id)


def test_the_merged_model_says_what_base_and_adapter_say(done: tuple[Runs, Prepared], base: str) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = folder_of(done)
    load = AutoModelForCausalLM.from_pretrained
    merged, plain = load(folder / "merged"), load(base)
    tokens = AutoTokenizer.from_pretrained(folder / "merged")("turn 1 of me", return_tensors="pt").input_ids
    with torch.no_grad():
        before = plain(tokens).logits
        with old_names():
            expected = PeftModel.from_pretrained(plain, folder / "model")(tokens).logits
        found = merged(tokens).logits
    assert (found - expected).abs().max() < 1e-4
    assert (found - before).abs().max() > 1e-2  # it has learned something at all
    assert not (folder / "merged" / "adapter_config.json").exists()


def test_the_card_says_where_the_model_comes_from(done: tuple[Runs, Prepared]) -> None:
    runs, prepared = done
    job = runs.load(prepared.job.job_id)
    card = (folder_of(done) / "model" / "README.md").read_text()
    _, front, text = card.split("---\n", 2)
    head = yaml.safe_load(front)
    assert (head["license"], head["library_name"]) == ("unknown", "peft")
    assert job.validation is not None
    for fact in (
        job.train.digest,
        job.validation.digest,
        "`train`",
        f"validation loss {job.result['eval_loss']:.4f}",
        "function `act`, answers of `history`",
        "Licence: unknown",
        "Not evaluated",
        f"torch {job.versions['torch']}",
    ):
        assert fact in text
    (recipe,) = [block for block in text.split("```") if block.startswith("json\n")]
    assert json.loads(recipe.removeprefix("json\n")) == job.recipe
    whole = (folder_of(done) / "merged" / "README.md").read_text()
    assert "library_name: transformers" in whole
    assert "A model tuned from" in whole


def test_tensorboard_has_every_loss(done: tuple[Runs, Prepared]) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder_of(done) / "tensorboard"))
    read.Reload()
    runs, prepared = done
    steps = [event for event in runs.events(prepared.job.job_id) if event["kind"] == "step"]
    losses = {event["n_done"]: event["loss"] for event in steps if event["loss"] is not None}
    told = {scalar.step: scalar.value for scalar in read.Scalars("train/loss")}
    assert told == pytest.approx(losses)
    assert [scalar.step for scalar in read.Scalars("eval/loss")] == [
        event["n_done"] for event in steps if event["eval_loss"] is not None
    ]


@pytest.mark.full
def test_what_does_not_change_the_model_makes_no_other_job(
    done: tuple[Runs, Prepared], base: str, stores: Path, tmp_path: Path
) -> None:
    runs = Runs(tmp_path / "runs")
    short = QUICK.model_copy(update={"max_steps": 1})
    first = prepare(request(base, stores, recipe=short), runs)
    assert work(runs, first.job.job_id) == 0
    assert not (runs.path(first.job.job_id) / "merged").exists()
    wishes = short.model_copy(update={"merge": True, "auto_batch": True})
    again = prepare(request(base, stores, recipe=wishes), runs)
    assert (again.is_new, again.job.job_id) == (False, first.job.job_id)
    take_wishes(runs, first.job.job_id, wishes)
    assert (runs.path(first.job.job_id) / "merged" / "model.safetensors").is_file()
    assert runs.load(first.job.job_id).recipe["auto_batch"]
    other = prepare(request(base, stores, recipe=short, chat_template="plain"), runs)
    assert other.is_new


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The losses of a long training that was resumed once."""
    runs = Runs(tmp_path_factory.mktemp("page") / "runs")
    data = JobData(
        store=Path("train"),
        digest="0" * 64,
        n_episodes=1,
        n_steps=1,
        n_learned=1,
        n_rows=1,
        n_tokens=1,
        n_learned_tokens=1,
        longest=1,
    )
    job = TuneJob(
        job_id="long <run>",
        key="1" * 64,
        target="local",
        base="some/model",
        recipe={},
        train=data,
        created_at=datetime.now(UTC),
        status=JobStatus.SUCCEEDED,
        result={"best_step": 600},
    )
    runs.path(job.job_id).mkdir(parents=True)
    runs.save(job)
    for n in [*range(1, 500), *range(400, 901)]:
        runs.add_event(job.job_id, {"kind": "step", "n_done": n, "loss": 2 / n**0.5 + n % 7 / 50})
        if n % 100 == 0:
            measured = 0.4 + abs(n - 600) / 1000
            runs.add_event(job.job_id, {"kind": "step", "n_done": n, "loss": None, "eval_loss": measured})
    path = write_loss_page(runs, job)
    assert path is not None
    return path


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.mark.parametrize(("size", "scheme"), daily([(PHONE, "light"), (DESKTOP, "dark")], 1))
def test_the_losses_are_a_page_that_needs_nothing_else(
    chromium: Any, page: Path, size: dict[str, int], scheme: str
) -> None:
    with opened(chromium, page, size=size, scheme=scheme) as found:
        lines = found.page.eval_on_selector_all(
            "polyline", "lines => lines.map(l => [l.points.length, l.getBBox().width, l.getBBox().height])"
        )
        assert [n for n, _, _ in lines] == [300, 9]  # of very many steps the means, each step once
        assert all(width > 300 and height > 50 for _, width, height in lines)
        strokes = found.page.eval_on_selector_all(
            "polyline", "lines => lines.map(l => getComputedStyle(l).stroke)"
        )
        assert len(set(strokes)) == 2
        assert found.page.inner_text("h1") == "long <run>"
        assert "step 600" in found.page.inner_text("p")
        rows = found.page.eval_on_selector_all("tbody tr", "rows => rows.map(r => r.innerText.split('\\t'))")
        assert ["600", "0.4000"] in rows
        ring = found.page.eval_on_selector(".ring", "ring => ring.getBBox().width")
        assert ring > 5
        assert not found.is_wider_than_its_window()
    assert found.said == []
    assert found.asked == []


def test_a_job_without_losses_has_no_page(done: tuple[Runs, Prepared], tmp_path: Path) -> None:
    _, prepared = done
    other = Runs(tmp_path)
    other.path(prepared.job.job_id).mkdir()
    assert write_loss_page(other, prepared.job) is None
