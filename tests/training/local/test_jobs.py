"""A training on this machine from a store to a model, in a process of its own, and what it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests import warm
from tests.browser import DESKTOP, PHONE, browser, opened
from tests.matrix import daily
from tests.tiny import make_tiny
from trajkit.errors import DataError, RequestError
from trajkit.models.generation.weights import old_names
from trajkit.schema import Episode, Transition, message
from trajkit.store.writer import write_episodes
from trajkit.training.job import JobData, JobStatus, Step, TuneJob
from trajkit.training.local.outcome.finish import take_wishes
from trajkit.training.local.outcome.page import write_loss_page
from trajkit.training.local.prepare import LocalRequest, Prepared, prepare
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.running.launch import cancel, follow, refreshed, start
from trajkit.training.local.running.worker import work
from trajkit.training.runs import Runs

QUICK = LocalRecipe(
    num_train_epochs=2,
    per_device_train_batch_size=4,
    learning_rate=5e-2,
    num_threads=1,
    report_to="tensorboard",
)


def episode(name: str, *, weight: float = 1.0, **fields: Any) -> Episode:
    steps = tuple(
        Transition(
            step_index=i,
            messages=(message("user", f"turn {i} of {name}: "),),
            completion=message("assistant", "go"),
            function_name="act",
            variant_name="history",
            loss_weight=weight,
        )
        for i in range(3)
    )
    return Episode(episode_id=name, source="test", steps=steps, **fields)


@pytest.fixture
def stores(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, *episodes: Episode) -> Path:
        write_episodes(tmp_path / name, episodes, kind="test")
        return tmp_path / name

    return write


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight episodes to train on, and two others for validation."""
    folder = tmp_path_factory.mktemp("stores")
    write_episodes(folder / "train", [episode(f"e{n}") for n in range(8)], kind="test")
    write_episodes(folder / "val", [episode(f"v{n}") for n in range(2)], kind="test")
    return folder


@pytest.fixture(scope="module")
def request_of(base: str, sides: Path) -> Callable[..., LocalRequest]:
    def make(recipe: LocalRecipe = QUICK, **options: Any) -> LocalRequest:
        given = {"train": sides / "train", "validation": sides / "val", "recipe": recipe, **options}
        return LocalRequest(base=base, **given)

    return make


class Done(NamedTuple):
    """A job that was trained in a process of its own, and what it told."""

    runs: Runs
    prepared: Prepared
    ended: TuneJob
    steps: list[Step]

    @property
    def folder(self) -> Path:
        return self.runs.path(self.ended.job_id)


@pytest.fixture(scope="module", params=["forked", pytest.param("anew", marks=pytest.mark.full)])
def done(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    request_of: Callable[..., LocalRequest],
) -> Done:
    """A job that is trained in its own process, its merged model too."""
    runs, steps = Runs(tmp_path_factory.mktemp("work") / "runs"), list[Step]()
    prepared = prepare(request_of(QUICK.model_copy(update={"merge": True})), runs)
    assert prepared.job.status == JobStatus.PREPARED
    with pytest.MonkeyPatch.context() as patch:
        starting = warm.forking() if request.param == "forked" else subprocess
        patch.setattr("trajkit.stack.process.subprocess", starting)
        started = start(runs, prepared.job.job_id)
        assert started.process is not None
        assert started.process.pid != os.getpid()
        ended = follow(runs, prepared.job.job_id, on_step=steps.append, timeout_s=120)
    assert ended.status == JobStatus.SUCCEEDED, ended.error
    return Done(runs, prepared, ended, steps)


def test_a_job_is_trained_once_and_the_same_is_found(
    done: Done, request_of: Callable[..., LocalRequest]
) -> None:
    runs, prepared, ended, steps = done
    job = prepared.job
    assert job.job_id == "tiny-train"
    assert (job.train.n_episodes, job.train.n_steps, job.train.n_learned) == (8, 24, 24)
    assert (job.function, job.variants) == ("act", ("history",))
    assert ended.result["n_steps"] == prepared.n_steps == max(step.n_done for step in steps)
    assert ended.result["eval_loss"] == min(step.eval_loss for step in steps if step.eval_loss is not None)
    saved = {path.name for path in (done.folder / "model").iterdir()}
    assert {"adapter_model.safetensors", "tokenizer.json", "chat_template.jinja"} <= saved
    assert start(runs, job.job_id).status == JobStatus.SUCCEEDED  # nothing is done twice
    again = prepare(request_of(), runs)
    assert (again.is_new, again.job.job_id) == (False, job.job_id)
    other = prepare(request_of(QUICK.model_copy(update={"seed": 1})), runs)
    assert (other.is_new, other.job.job_id) == (True, "tiny-train-2")
    with pytest.raises(RequestError) as caught:
        runs.load("other")
    assert caught.value.hint == "jobs: tiny-train-2, tiny-train"
    runs.remove("tiny-train-2")


LONG = QUICK.model_copy(update={"num_train_epochs": 3000, "learning_rate": 1e-3})


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_job_is_cancelled_goes_on_when_it_is_resumed_and_has_failed_when_its_process_was_killed(
    request_of: Callable[..., LocalRequest], tmp_path: Path
) -> None:
    runs = Runs(tmp_path / "runs")
    job_id = prepare(request_of(LONG), runs).job.job_id
    start(runs, job_id)
    until(lambda: len(runs.events(job_id)) > 8)
    assert cancel(runs, job_id).status == JobStatus.CANCELLED
    n_done = runs.events(job_id)[-2]["n_done"]
    with pytest.raises(RequestError, match="has already ended: cancelled"):
        cancel(runs, job_id)
    n_events = len(runs.events(job_id))
    job = start(runs, job_id)
    until(lambda: len(runs.events(job_id)) > n_events)
    assert runs.events(job_id)[n_events]["n_done"] > n_done // 2  # from a checkpoint, not from the start
    assert job.process is not None
    os.kill(job.process.pid, signal.SIGKILL)
    until(lambda: refreshed(runs, job_id).status == JobStatus.FAILED)
    assert "resume" in (refreshed(runs, job_id).error or "")


def test_what_leaks_is_not_trained_and_real_weights_reach_the_tokens(
    tmp_path: Path, base: str, stores: Callable[..., Path]
) -> None:
    from trajkit.training.local.tokens.tokenised import open_tokens

    train = stores("train", episode("a", weight=0.25), episode("b", weight=1.5))
    val = stores("val", episode("b"))
    request = LocalRequest(base=base, train=train, validation=val, recipe=QUICK)
    with pytest.raises(DataError, match="leaks"):
        prepare(request, Runs(tmp_path / "runs"))
    assert not (tmp_path / "runs" / "tiny-train").exists()
    allowed = prepare(request.model_copy(update={"allow_leak": True}), Runs(tmp_path / "runs"))
    assert allowed.job.leak is not None
    assert allowed.job.leak["is_allowed"]
    table = open_tokens(tmp_path / "runs" / allowed.job.job_id / "train.arrow").table
    assert {weight for row in table["weights"].to_pylist() for weight in row} == {0.0, 0.25, 1.5}


def test_a_row_that_is_too_long_is_an_error(tmp_path: Path, base: str, stores: Callable[..., Path]) -> None:
    short = QUICK.model_copy(update={"max_length": 8})
    request = LocalRequest(base=base, train=stores("train", episode("a")), recipe=short)
    with pytest.raises(DataError, match="longer than 8 tokens"):
        prepare(request, Runs(tmp_path / "runs"))
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_model_without_a_template_says_what_to_do(tmp_path: Path, stores: Callable[..., Path]) -> None:
    plain = make_tiny(tmp_path / "plain")
    (tmp_path / "plain" / "chat_template.jinja").unlink()
    request = LocalRequest(base=plain, train=stores("train", episode("a")))
    with pytest.raises(RequestError, match="no chat template") as caught:
        prepare(request, Runs(tmp_path / "runs"))
    assert "--chat-template plain" in (caught.value.hint or "")
    assert list((tmp_path / "runs").iterdir()) == []


def test_the_merged_model_says_what_base_and_adapter_say(done: Done, base: str) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = done.folder
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


def test_the_card_says_where_the_model_comes_from(done: Done) -> None:
    job = done.runs.load(done.ended.job_id)
    card = (done.folder / "model" / "README.md").read_text()
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
    whole = (done.folder / "merged" / "README.md").read_text()
    assert "library_name: transformers" in whole
    assert "A model tuned from" in whole


def test_tensorboard_has_every_loss(done: Done) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(done.folder / "tensorboard"))
    read.Reload()
    steps = [event for event in done.runs.events(done.ended.job_id) if event["kind"] == "step"]
    losses = {event["n_done"]: event["loss"] for event in steps if event["loss"] is not None}
    told = {scalar.step: scalar.value for scalar in read.Scalars("train/loss")}
    assert told == pytest.approx(losses)
    assert [scalar.step for scalar in read.Scalars("eval/loss")] == [
        event["n_done"] for event in steps if event["eval_loss"] is not None
    ]


@pytest.mark.full
def test_what_does_not_change_the_model_makes_no_other_job(
    request_of: Callable[..., LocalRequest], tmp_path: Path
) -> None:
    runs = Runs(tmp_path / "runs")
    short = QUICK.model_copy(update={"max_steps": 1})
    first = prepare(request_of(short), runs)
    assert work(runs, first.job.job_id) == 0
    assert not (runs.path(first.job.job_id) / "merged").exists()
    wishes = short.model_copy(update={"merge": True, "auto_batch": True})
    again = prepare(request_of(wishes), runs)
    assert (again.is_new, again.job.job_id) == (False, first.job.job_id)
    take_wishes(runs, first.job.job_id, wishes)
    assert (runs.path(first.job.job_id) / "merged" / "model.safetensors").is_file()
    assert runs.load(first.job.job_id).recipe["auto_batch"]
    other = prepare(request_of(short, chat_template="plain"), runs)
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


def test_a_job_without_losses_has_no_page(done: Done, tmp_path: Path) -> None:
    (tmp_path / done.ended.job_id).mkdir()
    assert write_loss_page(Runs(tmp_path), done.prepared.job) is None
