"""What tests of services share: services that answer, a prepared job, and waiting without waiting."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.training.hosted import fireworks_standin, together_standin
from tests.training.hosted.fireworks_standin import FireworksStandIn
from tests.training.hosted.together_standin import TogetherStandIn
from trajkit.curation.selection.split import split
from trajkit.store.dataset import open_dataset
from trajkit.training.hosted import creation, launch
from trajkit.training.hosted.fireworks import connect as fireworks
from trajkit.training.hosted.prepare import HostedRequest, prepare
from trajkit.training.hosted.service import Order, Service
from trajkit.training.hosted.together import connect as together
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


def everything(folder: Path) -> str:
    """Every file of a folder and its name."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return "\n".join(f"{path} {path.read_bytes().decode('utf-8', 'replace')}" for path in files)


Server = TogetherStandIn | FireworksStandIn


class Case(NamedTuple):
    """A service, and the words that it has for what every service has."""

    start: Callable[[], Server]
    connect: Callable[[Mapping[str, object]], Service]
    key: str
    variable: str
    """The environment variable that holds the key."""
    base: str
    epochs: str
    create: str
    """The request that makes a job."""
    sent: str
    """The stand-in's attribute with what was uploaded."""
    life: tuple[str, ...]
    """With an unknown state, to a good end."""
    cancelled: tuple[str, str]
    """Where a job says its state, and the state of one that was ended."""
    said: str
    """What is said of a wrong key."""


CASES = {
    "together": Case(
        start=TogetherStandIn,
        connect=together.connect,
        key=together_standin.KEY,
        variable="TOGETHER_API_KEY",
        base=together_standin.MODEL,
        epochs="n_epochs",
        create="POST /v1/fine-tunes",
        sent="files",
        life=("pending", "polishing", "polishing", "completed"),
        cancelled=("status", "cancelled"),
        said=r"Invalid API key provided: \*\*\*",
    ),
    "fireworks": Case(
        start=FireworksStandIn,
        connect=fireworks.connect,
        key=fireworks_standin.KEY,
        variable="FIREWORKS_API_KEY",
        base="qwen3-8b",
        epochs="epochs",
        create=f"POST /v1/{fireworks_standin.ACCOUNT}/supervisedFineTuningJobs",
        sent="datasets",
        life=("CREATING", "POLISHING", "POLISHING", "EARLY_STOPPED"),
        cancelled=("state", "JOB_STATE_CANCELLED"),
        said=r"bad key \*\*\*",
    ),
}


class Running(NamedTuple):
    """A case whose service answers."""

    case: Case
    server: Server
    prepared: Ready

    @property
    def service(self) -> Service:
        return self.case.connect({"base_url": self.server.url})

    @property
    def n_created(self) -> int:
        """How often a job was asked for."""
        return sum(str(one) == self.case.create for one in self.server.requests)

    @property
    def n_sent(self) -> int:
        """Files that are there."""
        return len(getattr(self.server, self.case.sent))


Begin = Callable[[str, pytest.MonkeyPatch], Running]
