"""The life of a job at every service with an API of its own, over real HTTP: what all of them must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.training.hosted import fireworks_standin, together_standin
from tests.training.hosted.fireworks_standin import FireworksStandIn
from tests.training.hosted.life import Ready, quickly, ready
from tests.training.hosted.loopback import Reply
from tests.training.hosted.together_standin import TogetherStandIn
from trajkit.errors import ServiceError
from trajkit.training.hosted import launch
from trajkit.training.hosted.answer import MissingKey, Unreachable
from trajkit.training.hosted.fireworks import connect as fireworks
from trajkit.training.hosted.service import Service
from trajkit.training.hosted.together import connect as together
from trajkit.training.job import JobStatus

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


@pytest.fixture(scope="module", params=CASES)
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    case = CASES[request.param]
    with case.start() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv(case.variable, case.key)
        folder = tmp_path_factory.mktemp(request.param)
        service = case.connect({"base_url": server.url})
        yield Running(case, server, ready(service, folder, case.base, **{case.epochs: 2}))


@pytest.fixture
def running(started: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    quickly(monkeypatch)
    started.server.reset()
    return started


@pytest.fixture
def job(running: Running, tmp_path: Path) -> Ready:
    return running.prepared.copied(tmp_path / "runs")


@pytest.mark.full
def test_it_is_a_service(running: Running) -> None:
    assert isinstance(running.service, Service)


def test_the_key_is_nowhere_in_the_folder_of_a_job(running: Running, job: Ready) -> None:
    launch.start(*job)
    launch.follow(*job)
    for path in job.folder.rglob("*"):
        assert path.is_dir() or running.case.key.encode() not in path.read_bytes(), path


def test_the_same_job_is_found_and_never_made_twice(running: Running, job: Ready, tmp_path: Path) -> None:
    launch.start(*job)
    launch.start(*running.prepared.copied(tmp_path / "another machine"))
    assert len(running.server.jobs) == running.n_created == 1
    assert running.n_sent == 2, "two sides, each sent once"


def test_a_job_whose_answer_was_lost_is_found_and_not_made_again(running: Running, job: Ready) -> None:
    running.server.hang_up_after_create = True
    assert launch.start(*job).status == JobStatus.RUNNING
    assert running.n_created == 1


def test_a_service_that_is_down_is_not_asked_twice_to_create(running: Running, job: Ready) -> None:
    said = {"error": {"message": "overloaded"}, "code": 14, "message": "overloaded", "details": []}
    running.server.refuse[running.case.create] = Reply(said, 503)
    with pytest.raises(Unreachable, match=r"overloaded.*503"):
        launch.start(*job)
    assert running.n_created == 1
    running.server.refuse.clear()
    assert launch.resume(*job).status == JobStatus.RUNNING
    assert running.n_sent == 2, "what was sent is not sent again"


def test_a_word_of_theirs_that_is_not_known_is_a_job_that_runs(running: Running, job: Ready) -> None:
    running.server.life = running.case.life
    launch.start(*job)
    assert launch.refreshed(*job).status == JobStatus.RUNNING
    assert launch.follow(*job).status == JobStatus.SUCCEEDED


@pytest.mark.full
def test_cancel_ends_the_job_there(running: Running, job: Ready) -> None:
    launch.start(*job)
    assert launch.cancel(*job).status == JobStatus.CANCELLED
    name, word = running.case.cancelled
    assert [one[name] for one in running.server.jobs.values()] == [word]
    launch.start(*job)
    assert len(running.server.jobs) == 2, "a cancelled job is no answer to the same order"


def test_a_wrong_key_is_said_without_the_key(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(running.case.variable, "a-wrong-key")
    with pytest.raises(ServiceError, match=running.case.said) as caught:
        running.service.preflight(running.case.base)
    assert running.case.variable in str(caught.value.hint)
    assert "a-wrong-key" not in f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"


def test_without_a_key_the_variable_is_named(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(running.case.variable)
    with pytest.raises(MissingKey, match=f"{running.case.variable} is not set"):
        running.service.preflight(running.case.base)


def test_nobody_there_is_unreachable(running: Running) -> None:
    with running.case.start() as gone:
        service = running.case.connect({"base_url": gone.url})
    with pytest.raises(Unreachable, match="cannot be reached"):
        service.preflight(running.case.base)
