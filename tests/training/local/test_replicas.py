"""One training in two processes, which talk over gloo here and over NCCL on GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tiny import make_tiny
from trajkit.errors import RequestError
from trajkit.schema import Episode, Transition, message
from trajkit.store.writer import write_episodes
from trajkit.training.job import TuneJob
from trajkit.training.local.prepare import LocalRequest, prepare
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.replicas import check_replicas
from trajkit.training.local.worker import work
from trajkit.training.runs import Runs


def episode(n: int) -> Episode:
    step = Transition(
        step_index=0,
        messages=(message("user", f"say {n}: "),),
        completion=message("assistant", "go" * (1 + n % 3)),
        loss_weight=0.5 + n / 10,
    )
    return Episode(episode_id=f"e{n}", source="test", steps=(step,))


def trained(folder: Path, base: str, **recipe: object) -> tuple[Runs, TuneJob]:
    """A job that was trained; sixteen rows, so that no batch is short."""
    runs = Runs(folder / "runs")
    plan = {"num_train_epochs": 2, "learning_rate": 1e-2, "num_threads": 1, **recipe}
    request = LocalRequest(base=base, train=folder / "train", recipe=LocalRecipe.model_validate(plan))
    prepared = prepare(request, runs)
    assert work(runs, prepared.job.job_id) == 0, runs.load(prepared.job.job_id).error
    job = runs.load(prepared.job.job_id)
    assert job.result["n_steps"] == prepared.n_steps == 8
    return runs, job


@pytest.mark.full
def test_two_processes_learn_what_one_does_with_twice_the_batch(tmp_path: Path) -> None:
    base = make_tiny(tmp_path / "tiny")
    write_episodes(tmp_path / "train", [episode(n) for n in range(16)], kind="test")
    losses = []
    for n_processes, size in ((1, 4), (2, 2)):
        runs, job = trained(tmp_path, base, num_processes=n_processes, per_device_train_batch_size=size)
        losses.append([event["loss"] for event in runs.events(job.job_id) if event["kind"] == "step"])
        assert (runs.path(job.job_id) / "model" / "adapter_model.safetensors").is_file()
        assert json.loads((runs.path(job.job_id) / "job.json").read_text())["status"] == "succeeded"
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert len(losses[0]) == 8


def test_several_processes_cannot_halve_their_batches() -> None:
    with pytest.raises(RequestError, match="auto_batch is for one process"):
        check_replicas(LocalRecipe(num_processes=2, auto_batch=True))
