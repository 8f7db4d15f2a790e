"""What tests of services have in common: a prepared job, and waiting without waiting."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trajkit.curation.split import split
from trajkit.store.dataset import open_dataset
from trajkit.training.hosted import launch
from trajkit.training.hosted.prepare import HostedRequest, prepare
from trajkit.training.hosted.service import Order, Service
from trajkit.training.runs import Runs

ROW = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}
"""A row that every service takes."""


class Ready(NamedTuple):
    """A job that can be started."""

    runs: Runs
    job_id: str

    @property
    def folder(self) -> Path:
        return self.runs.path(self.job_id)

    def copied(self, goal: Path) -> Ready:
        """The same job, on another machine."""
        shutil.copytree(self.runs.folder, goal)
        return Ready(Runs(goal), self.job_id)


def ready(service: Service, folder: Path, base: str, **recipe: object) -> Ready:
    """Sixteen episodes, three quarters of them to learn."""
    store = folder / "store"
    open_dataset("sample:babyai").where("purpose <> 'eval'").limit(16).save(store)
    split(store, folder / "sides", ratio={"train": 0.75, "val": 0.25})
    request = HostedRequest(
        base=base,
        train=folder / "sides" / "train",
        validation=folder / "sides" / "val",
        recipe=recipe,  # type: ignore[arg-type]
    )
    runs = Runs(folder / "runs")
    return Ready(runs, prepare(request, service, runs).job.job_id)


def order(base: str, training_file: str, **about: Any) -> Order:
    """An order of a job on fifty rows."""
    usual: dict[str, Any] = {"mark": "0123456789abcdef" * 4, "name": "my Job", "n_rows": 50}
    return Order(base=base, training_file=training_file, **usual | about)


def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again at once."""
    monkeypatch.setattr(launch, "FIRST_POLL_S", 0.01)
    monkeypatch.setattr(launch, "LONGEST_POLL_S", 0.01)
