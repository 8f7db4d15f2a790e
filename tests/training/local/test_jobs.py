"""A training on this machine from a store to a model, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.tiny import make_tiny
from trajkit.errors import DataError, RequestError
from trajkit.schema import Episode, Transition, message
from trajkit.store.writer import write_episodes
from trajkit.training.job import JobStatus
from trajkit.training.local.prepare import LocalRequest, Prepared, prepare
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.running.launch import cancel, follow, refreshed, start
from trajkit.training.runs import Runs
from trajkit.training.step import Step

QUICK = LocalRecipe(num_train_epochs=2, per_device_train_batch_size=4, learning_rate=1e-2, num_threads=1)


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


@pytest.fixture
def ready(tmp_path: Path, base: str, stores: Callable[..., Path]) -> Callable[..., tuple[Runs, Prepared]]:
    """Prepare a job on eight episodes, with two others for validation."""
    runs = Runs(tmp_path / "runs")

    def make(recipe: LocalRecipe = QUICK, **options: Any) -> tuple[Runs, Prepared]:
        if not (tmp_path / "train").exists():
            stores("train", *(episode(f"e{n}") for n in range(8)))
            stores("val", *(episode(f"v{n}") for n in range(2)))
        request = LocalRequest(
            base=base, train=tmp_path / "train", validation=tmp_path / "val", recipe=recipe, **options
        )
        return runs, prepare(request, runs)

    return make


@pytest.mark.parametrize(
    "starting", [warm.forking(), pytest.param(subprocess, marks=pytest.mark.full)], ids=["forked", "anew"]
)
def test_a_job_is_trained_in_its_own_process(
    ready: Callable[..., tuple[Runs, Prepared]], monkeypatch: pytest.MonkeyPatch, starting: Any
) -> None:
    monkeypatch.setattr("trajkit.stack.process.subprocess", starting)
    runs, prepared = ready()
    job = prepared.job
    assert (job.job_id, job.status) == ("tiny-train", JobStatus.PREPARED)
    assert (job.train.n_episodes, job.train.n_steps, job.train.n_learned) == (8, 24, 24)
    assert (job.function, job.variants) == ("act", ("history",))
    steps: list[Step] = []
    started = start(runs, job.job_id)
    assert started.process is not None
    assert started.process.pid != os.getpid()
    done = follow(runs, job.job_id, on_step=steps.append, timeout_s=120)
    assert done.status == JobStatus.SUCCEEDED, done.error
    assert done.result["n_steps"] == prepared.n_steps == max(step.n_done for step in steps)
    assert done.result["eval_loss"] == min(step.eval_loss for step in steps if step.eval_loss is not None)
    saved = {path.name for path in (runs.path(job.job_id) / "model").iterdir()}
    assert {"adapter_model.safetensors", "tokenizer.json", "chat_template.jinja"} <= saved
    assert start(runs, job.job_id).status == JobStatus.SUCCEEDED  # nothing is done twice


def test_the_same_job_is_found_and_not_made_twice(ready: Callable[..., tuple[Runs, Prepared]]) -> None:
    runs, first = ready()
    _, again = ready()
    assert (again.is_new, again.job.job_id) == (False, first.job.job_id)
    _, other = ready(QUICK.model_copy(update={"seed": 1}))
    assert (other.is_new, other.job.job_id) == (True, "tiny-train-2")
    assert {job.job_id for job in runs.all()} == {"tiny-train", "tiny-train-2"}


LONG = QUICK.model_copy(update={"num_train_epochs": 3000, "learning_rate": 1e-3})


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_job_is_cancelled_goes_on_when_it_is_resumed_and_has_failed_when_its_process_was_killed(
    ready: Callable[..., tuple[Runs, Prepared]],
) -> None:
    runs, prepared = ready(LONG)
    job_id = prepared.job.job_id
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


def test_what_leaks_is_not_trained(tmp_path: Path, base: str, stores: Callable[..., Path]) -> None:
    train = stores("train", episode("a"), episode("b"))
    val = stores("val", episode("b"))
    request = LocalRequest(base=base, train=train, validation=val, recipe=QUICK)
    with pytest.raises(DataError, match="leaks"):
        prepare(request, Runs(tmp_path / "runs"))
    assert not (tmp_path / "runs" / "tiny-train").exists()
    allowed = prepare(request.model_copy(update={"allow_leak": True}), Runs(tmp_path / "runs"))
    assert allowed.job.leak is not None
    assert allowed.job.leak["is_allowed"]


def test_real_weights_reach_the_tokens(tmp_path: Path, base: str, stores: Callable[..., Path]) -> None:
    from trajkit.training.local.tokens.tokenised import open_tokens

    train = stores("train", episode("a", weight=0.25), episode("b", weight=1.5))
    prepared = prepare(LocalRequest(base=base, train=train, recipe=QUICK), Runs(tmp_path / "runs"))
    table = open_tokens(tmp_path / "runs" / prepared.job.job_id / "train.arrow").table
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


def test_a_job_that_is_not_there_lists_those_that_are(ready: Callable[..., tuple[Runs, Prepared]]) -> None:
    runs, _ = ready()
    with pytest.raises(RequestError) as caught:
        runs.load("other")
    assert caught.value.hint == "jobs: tiny-train"
