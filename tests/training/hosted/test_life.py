"""The life of a job at every service with an API of its own, over real HTTP: what all of them must hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.hosted.life import Ready, Running
from tests.training.hosted.loopback import Reply
from trajkit.errors import ServiceError
from trajkit.training.hosted import launch
from trajkit.training.hosted.answer import MissingKey, Unreachable
from trajkit.training.job import JobStatus


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
