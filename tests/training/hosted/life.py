"""What tests of services have in common: a prepared job, and waiting without waiting."""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trajkit.curation.selection.split import split
from trajkit.store.dataset import open_dataset
from trajkit.training.hosted import creation, launch
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


_folder = tempfile.TemporaryDirectory()


@functools.cache
def _sides() -> Path:
    """Sixteen episodes, three quarters of them to learn; no job changes them."""
    store, goal = Path(_folder.name, "store"), Path(_folder.name, "sides")
    open_dataset("sample:babyai").where("purpose <> 'eval'").limit(16).save(store)
    split(store, goal, ratio={"train": 0.75, "val": 0.25})
    return goal


def ready(service: Service, folder: Path, base: str, **recipe: object) -> Ready:
    """A job on these."""
    request = HostedRequest(
        base=base,
        train=_sides() / "train",
        validation=_sides() / "val",
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
    monkeypatch.setattr(creation, "FIRST_LOOK_S", 0.01)
    monkeypatch.setattr(launch, "FIRST_POLL_S", 0.01)
    monkeypatch.setattr(launch, "LONGEST_POLL_S", 0.01)
