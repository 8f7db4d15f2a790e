"""What the commands on jobs print and return, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import trajkit
from tests.cli.jobs import a_job, a_store, an_episode
from trajkit.cli.main import run
from trajkit.training.job import JobStatus

WHY = "no memory\x1b[31m left"


@pytest.fixture(autouse=True)
def _jobs() -> None:
    """One job that failed and one that succeeded, the last."""
    store = a_store("episodes", an_episode("e1"))
    a_job(store, job_id="broken", status=JobStatus.FAILED, error=WHY)
    a_job(store, job_id="good", result={"n_steps": 3, "train_loss": 0.5, "eval_loss": 0.25, "best_step": 2})


def test_a_list_is_a_table_of_outcomes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jobs", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["job", "status", "target", "model"]
    assert lines[2].endswith("3 steps  loss 0.500  validation 0.250 at step 2")
    assert lines[3].startswith("broken  failed")


def test_a_job_that_failed_can_be_shown_and_cannot_be_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jobs", "show", "broken"]) == 0
    printed = capsys.readouterr()
    assert "lora.r" in printed.out
    assert printed.out.splitlines()[-1] == "runs/broken  failed"
    assert printed.err == "broken: no memory\\u001b[31m left\n"
    assert run(["jobs", "wait", "broken"]) == 1
    assert capsys.readouterr().out == "runs/broken  failed\n"
    assert run(["jobs", "cancel", "good"]) == 2


def test_json_is_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jobs", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(Path("runs/good/job.json").read_text())


def test_in_python_a_job_is_a_value_that_shows_itself() -> None:
    job = trajkit.jobs_show()
    assert job == trajkit.jobs_wait("good")
    assert job != trajkit.jobs_show("broken")
    assert repr(job) == "<job good: succeeded  3 steps  loss 0.500  validation 0.250 at step 2>"
    assert str(trajkit.jobs_wait("good")).startswith("runs/good  succeeded")
    assert "num" not in job._repr_html_()
    assert "lora.use_dora" in job._repr_html_()
    assert [each.job_id for each in trajkit.jobs_list()] == ["good", "broken"]
