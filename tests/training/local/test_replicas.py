"""One training in two processes, which talk over gloo here and over NCCL on GPUs."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import make_tiny
from trajkit.errors import RequestError
from trajkit.schema import Episode, Transition, message
from trajkit.store.writer import write_episodes
from trajkit.training.job import TuneJob
from trajkit.training.local.base_model import gathered, load_base
from trajkit.training.local.loss import weighted_loss
from trajkit.training.local.prepare import LocalRequest, prepare
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.running.replicas import check_replicas
from trajkit.training.local.running.worker import work
from trajkit.training.local.tokens.batch import TokenRows, collate
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
    with pytest.raises(RequestError, match="auto_batch works with one process"):
        check_replicas(LocalRecipe(num_processes=2, auto_batch=True))


def losses_of(runs: Runs, job: TuneJob) -> list[float]:
    return [event["loss"] for event in runs.events(job.job_id) if event["kind"] == "step"]


def weights_of(runs: Runs, job: TuneJob) -> dict[str, Any]:
    from safetensors.torch import load_file

    (path,) = (runs.path(job.job_id) / "model").glob("*.safetensors")
    found: dict[str, Any] = load_file(path)
    return found


@pytest.mark.full
@pytest.mark.parametrize("fields", [{"gradient_checkpointing": True}, {"lora": None}])
def test_processes_that_share_a_model_out_learn_what_one_does(tmp_path: Path, fields: dict[str, Any]) -> None:
    base = make_tiny(tmp_path / "tiny")
    write_episodes(tmp_path / "train", [episode(n) for n in range(16)], kind="test")
    sides = [
        trained(tmp_path, base, per_device_train_batch_size=size, **fields, **more)
        for size, more in ((4, {"num_processes": 1}), (2, {"num_processes": 2, "fsdp": True}))
    ]
    one, two = (losses_of(*side) for side in sides)
    assert one == pytest.approx(two, rel=1e-5)
    whole, parts = (weights_of(*side) for side in sides)
    assert whole.keys() == parts.keys()
    assert all((whole[name] - parts[name]).abs().max() < 1e-5 for name in whole)
    runs, job = sides[1]
    folder = runs.path(job.job_id)
    shutil.rmtree(folder / "checkpoints" / "checkpoint-8")  # as if it had been killed before
    shutil.rmtree(folder / "model")
    assert work(runs, job.job_id) == 0
    again = weights_of(runs, job)
    assert all((again[name] - parts[name]).abs().max() == 0 for name in parts)


@pytest.mark.full
def test_two_machines_meet_and_train_together(tmp_path: Path) -> None:
    base = make_tiny(tmp_path / "tiny")
    write_episodes(tmp_path / "train", [episode(n) for n in range(16)], kind="test")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{free.getsockname()[1]}"
    ended: list[int] = []
    torchrun = [sys.executable, "-m", "torch.distributed.run"]

    def other() -> None:
        """Run the command that the job tells, as the second machine."""
        for _ in range(600):
            told = list((tmp_path / "runs").glob("*/events.jsonl"))
            for line in told[0].read_text().splitlines() if told else ():
                if "torchrun" in (message := json.loads(line).get("message", "")):
                    command = shlex.split(message.partition("torchrun ")[2])
                    ended.append(subprocess.run([*torchrun, *command], check=False).returncode)
                    return
            time.sleep(0.2)

    thread = threading.Thread(target=other)
    thread.start()
    meeting = {"num_processes": 2, "num_machines": 2, "rdzv_endpoint": where}
    runs, job = trained(tmp_path, base, per_device_train_batch_size=2, fsdp=True, **meeting)
    thread.join()
    assert ended == [0]
    runs, alone = trained(tmp_path, base, per_device_train_batch_size=4, num_processes=1)
    assert losses_of(runs, job) == pytest.approx(losses_of(runs, alone), rel=1e-5)


def test_a_shared_out_model_has_the_same_loss_and_gives_its_weights_whole(base: str) -> None:
    import numpy as np
    import pyarrow as pa
    import torch
    from torch.distributed.fsdp import fully_shard

    from trajkit.training.local.tokens.batch import SCHEMA

    rows = TokenRows(pa.table({"input_ids": [[1, 2, 3, 4]], "weights": [[0.0, 1, 0, 2]]}, schema=SCHEMA))
    batch = collate([rows[0]], padding=0)
    model = load_base(base, LocalRecipe())
    whole = weighted_loss(model, batch).total.item()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        for layer in model.base_model.model.model.layers:
            fully_shard(layer)
        # as accelerate does
        ends = [model.base_model.model.model.norm, model.base_model.model.lm_head]
        fully_shard(ends, reshard_after_forward=False)
        fully_shard(model)
        loss = weighted_loss(model, batch).total
        loss.backward()
        weights = gathered(model)
    finally:
        torch.distributed.destroy_process_group()
    assert np.isclose(loss.item(), whole, rtol=1e-6)
    assert weights
    assert all("lora_" in name and type(each) is torch.Tensor for name, each in weights.items())


@pytest.mark.parametrize(
    ("method", "fields", "words"),
    [
        ("sft", {"num_processes": 1, "fsdp": True}, "there is only one"),
        ("dpo", {"num_processes": 2, "fsdp": True}, "dpo trains in one process"),
        ("rl", {"num_machines": 2}, "rl trains in one process"),
    ],
)
def test_processes_that_cannot_share_a_model_are_refused(
    method: str, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(RequestError, match=words):
        check_replicas(LocalRecipe.model_validate(fields), method)


@pytest.mark.parametrize(
    "fields",
    [
        {"load_in": "4bit"},
        {"lora": {"use_dora": True}},
        {"optim": "paged_adamw_8bit"},
        {"precision": "fp16"},
        {"play": {"seeds": "1:2"}},
        {"torch_compile": True},
    ],
)
def test_what_cannot_be_shared_out_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="fsdp does not work with"):
        LocalRecipe.model_validate({"fsdp": True, **fields})
