"""The life of a job over OpenAI's API, and everything that users saw go wrong with one."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.matrix import daily
from tests.training.hosted.openai_server import KEY, LOSSES, FakeOpenAI
from trajkit._core.lock import locked
from trajkit.cli.main import run
from trajkit.schema import Episode, Transition, message
from trajkit.store.writer import write_episodes
from trajkit.training.hosted import launch
from trajkit.training.hosted.answer import way_out
from trajkit.training.hosted.openai import client as openai_client
from trajkit.training.hosted.openai.client import PROFILES
from trajkit.training.hosted.remote import Remote
from trajkit.training.job import JobStatus
from trajkit.training.runs import Runs

CREATE, UPLOAD, LIST = "POST /fine_tuning/jobs", "POST /files", "GET /fine_tuning/jobs"
MODEL = "gpt-4.1-mini-2025-04-14"
JOB = f"{MODEL}-episodes"


def sft(*more: str, train: str = "episodes", fraction: str = "0") -> int:
    return run(
        [
            *("sft", "openai", "--profile", "openai", "--train", train, "--val-fraction", fraction),
            *("--tokenizer", "estimate", *more),
        ]
    )


def only_job() -> Any:
    (job,) = Runs(Path("runs")).all()
    return job


def test_a_store_becomes_a_tuned_model_and_is_paid_for_once(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--yes", "--n-epochs", "2", "--suffix", "mine", "--seed", "7")
    assert sft(*asked, fraction="0.1") == 0
    printed = capsys.readouterr()
    plan = ("2 epochs", "5 USD for a million tokens", "leaks     none", "end on 2027-01-14", "suffix mine")
    assert [words for words in plan if words not in printed.err] == []
    model = "ft:gpt-4.1-mini-2025-04-14:org-test::abc"
    assert printed.out.startswith("runs/gpt-4.1-mini-2025-04-14-train  succeeded  " + model)

    (body,) = service.bodies
    job = only_job()
    assert body["metadata"]["trajkit_run"] == job.key
    assert body["method"] == {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 2}}}
    assert (body["suffix"], body["seed"]) == ("mine", 7)
    folder = Path("runs") / job.job_id
    for side in ("training", "validation"):
        assert service.contents[body[f"{side}_file"]] == (folder / f"{side}.jsonl").read_bytes()
    assert job.result == {
        "model": model,
        "n_steps": 2,
        "train_loss": 0.4,
        "eval_loss": 0.5,
        "n_trained_tokens": 1_000_000,
        "cost_usd": 5.0,
    }
    assert (folder / "results" / "file-result.csv").read_text() == LOSSES
    assert [checkpoint.n_steps for checkpoint in Remote.of(job).checkpoints] == [1]
    assert (job.function, job.variants) == ("act", ("plain",))
    told = [event["message"] for event in Runs(Path("runs")).events(job.job_id)]
    assert "an unknown kind of event" in told
    assert len(told) == len(set(told)) == 4

    assert sft(*asked, fraction="0.1") == 0  # the same again
    assert "is the same: succeeded" in capsys.readouterr().err
    assert sft(*asked, "--runs", "second", fraction="0.1") == 0  # and where the record is lost
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1].startswith(f"second/{job.job_id}  succeeded  ft:")
    assert "has this job already, as ftjob-1 (succeeded): nothing is paid again" in printed.err
    assert (service.calls.count(CREATE), service.calls.count(UPLOAD)) == (1, 2)


def test_a_job_whose_creation_was_not_answered_is_found_and_a_list_that_never_ends_is_read_once(
    service: FakeOpenAI,
) -> None:
    service.broken[CREATE] = 1
    service.is_endless = True
    assert sft("--yes") == 0
    assert (len(service.jobs), service.calls.count(CREATE)) == (1, 1)
    assert len(Runs(Path("runs")).events(JOB)) == 4


def test_a_job_is_written_down_before_anything_else_is_asked(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    service.refused["GET /fine_tuning/jobs/ftjob-1/events"] = (400, {"error": {"message": "no events today"}})
    assert sft("--yes") == 4
    assert "no events today" in capsys.readouterr().err
    state = Remote.of(only_job()).state
    assert state is not None
    assert (only_job().status, state.remote_id) == ("running", "ftjob-1")


def test_two_processes_do_not_start_the_same_job(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sft("--yes", "--detach") == 0
    with locked(Path("runs") / JOB / launch.LOCK):
        assert run(["jobs", "pause"]) == 2
        assert f"process {os.getpid()} is busy with job {JOB}" in capsys.readouterr().err
        assert run(["jobs", "show"]) == 0  # as the other one wrote it
    assert len(service.jobs) == 1


@pytest.mark.parametrize("keeps_metadata", daily([False, True], 1))
def test_a_process_that_died_after_creating_leaves_a_job_that_is_found(
    service: FakeOpenAI, keeps_metadata: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sft("--yes", "--detach") == 0
    runs = Runs(Path("runs"))
    job = only_job()  # as it stood on disk when the request went out
    remote = Remote.of(job).model_copy(update={"state": None})
    runs.save(remote.put_into(job, status=JobStatus.PREPARED))
    if not keeps_metadata:
        service.jobs["ftjob-1"]["metadata"] = None
    capsys.readouterr()
    assert run(["jobs", "resume"]) == 0
    assert "succeeded" in capsys.readouterr().out
    assert (len(service.jobs), service.calls.count(UPLOAD)) == (1, 1)


FAILURES = [
    (
        "invalid_n_examples",
        "Training file has 7 example(s), but must have at least 10 examples",
        "--unit step",
    ),
    (
        "invalid_file_format",
        "The job failed due to a file format error in the training file. Invalid file format. Example 1 "
        'contains an extra "weight".',
        "trajkit validate",
    ),
    (
        "invalid_training_file",
        "Invalid file format. Example 100, message 2 Discriminator 'role' is missing in value",
        "trajkit validate",
    ),
    (
        "invalid_training_file",
        "Invalid file format. Example 6174 message contains an invalid token: <|fim_suffix|>.",
        "special tokens",
    ),
    ("invalid_training_file", "Example 1 is missing key 'messages'", "trajkit validate"),
    (
        "invalid_training_file",
        "Example 1273 cannot be parsed. Error: line contains invalid json: Unterminated string",
        "trajkit validate",
    ),
    (
        None,
        "Error while running moderation eval refusals_v3 for snapshot ft:gpt-4.1-mini:org::a",
        "trajkit select",
    ),
]


@pytest.mark.parametrize(("code", "text", "words"), FAILURES)
def test_every_failure_has_its_way_out(code: str | None, text: str, words: str) -> None:
    assert words in str(way_out(code, text, rows=Path("rows.jsonl"), rules="openai"))
    assert way_out("server_error", "Something unknown", rows=Path("rows.jsonl"), rules="openai") is None


def test_a_failed_job_says_why_leaves_no_file_and_is_created_anew_only_after_another_yes(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    service.statuses = ["validating_files", "failed"]
    code, text, words = FAILURES[1]
    service.error = {"code": code, "message": text, "param": "training_file"}
    assert sft("--yes") == 1
    said = capsys.readouterr().err
    assert f"{code}: {text}" in said
    assert words in said
    assert service.files == {}
    assert (only_job().status, Remote.of(only_job()).files) == ("failed", ())
    assert run(["jobs", "resume"]) == 2
    assert "a new one would cost again" in capsys.readouterr().err
    service.statuses = ["succeeded"]
    service.jobs["ftjob-1"]["looks"] = 0
    assert sft() == 2  # there is no terminal to ask on
    assert "created and paid for again" in capsys.readouterr().err
    assert len(service.jobs) == 1
    assert sft("--yes") == 0
    assert len(service.jobs) == 2


def test_a_file_that_cannot_be_removed_is_named(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    service.refused["DELETE /files/file-1"] = (403, {"error": {"message": "not allowed"}})
    service.refused[CREATE] = (400, {"error": {"message": "no", "code": None}})
    assert sft("--yes") == 4
    assert "still uploaded there: file-1" in capsys.readouterr().err


CLOSED = {
    "error": {
        "message": "OpenAI is winding down the fine-tuning platform and your organization is no longer able"
        " to create new fine-tuning training jobs.",
        "type": "invalid_request_error",
        "param": None,
        "code": "training_not_available",
    }
}


def test_a_closed_organisation_is_told_before_anything_is_uploaded(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    service.refused[LIST] = (403, CLOSED)
    assert sft("--yes") == 4
    said = capsys.readouterr().err
    assert "winding down" in said
    assert "trajkit sft local" in said
    assert UPLOAD not in service.calls
    assert not Path("runs").exists()


@pytest.mark.full
def test_a_closed_organisation_that_shows_only_at_the_end_leaves_no_file_there(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    service.has_history = False
    service.refused[CREATE] = (403, CLOSED)
    assert sft("--yes") == 4
    said = capsys.readouterr().err
    assert "no earlier job" in said  # the plan had a word about it
    assert "trajkit sft local" in said
    assert UPLOAD in service.calls
    assert (service.files, only_job().status) == ({}, "failed")


def test_an_upload_that_is_refused_says_what_a_byte_order_mark_does(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "Expected file to have JSONL format, where every line is a JSON dictionary. Line 1 is not a"
        ' dictionary (HINT: line starts with: "{"p...").'
    )
    service.refused[UPLOAD] = (400, {"error": {"message": text, "code": None}})
    assert sft("--yes") == 4
    assert "byte order mark" in capsys.readouterr().err
    assert (service.jobs, only_job().status) == ({}, "failed")


@pytest.mark.full
def test_an_upload_that_is_cut_off_goes_on_with_resume(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.01)
    service.broken[UPLOAD] = 3  # the client tries three times
    assert sft("--yes") == 4
    said = capsys.readouterr().err
    assert "the upload was interrupted" in said
    assert f"trajkit jobs resume {JOB}" in said
    assert run(["jobs", "resume"]) == 0
    assert len(service.jobs) == 1


@pytest.mark.full
def test_a_network_that_is_gone_for_a_while_only_delays(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.01)
    service.broken["GET /fine_tuning/jobs/ftjob-1"] = 4
    assert sft("--yes") == 0
    assert "trying again" in capsys.readouterr().err


@pytest.mark.full
def test_a_network_that_stays_away_ends_the_waiting_and_not_the_job(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.01)
    monkeypatch.setattr(launch, "PATIENCE_S", 0.0)
    assert sft("--yes", "--detach") == 0
    service.broken["GET /fine_tuning/jobs/ftjob-1"] = 6
    assert run(["jobs", "wait"]) == 4
    assert f"trajkit jobs wait {JOB}" in capsys.readouterr().err
    assert run(["jobs", "list"]) == 0  # as it was last seen
    assert "as it was last seen" in capsys.readouterr().err
    service.broken.clear()
    assert run(["jobs", "wait"]) == 0


@pytest.mark.full
def test_a_result_that_never_comes_says_how_to_wait_again(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    service.statuses = ["queued"]
    assert sft("--yes", "--detach") == 0
    assert run(["jobs", "wait", "--timeout", "0.1"]) == 2
    said = capsys.readouterr().err
    assert "is still queued" in said
    assert f"trajkit jobs wait {JOB}" in said


@pytest.mark.full
def test_a_job_can_be_halted_resumed_and_cancelled_from_another_process(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    service.statuses = ["running", "an unknown status"]
    assert sft("--yes", "--detach") == 0
    other = warm.trajkit(["jobs", "pause"], Path.cwd(), dict(os.environ))
    assert "running" in other.stdout
    assert service.jobs["ftjob-1"]["status"] == "paused"
    assert run(["jobs", "show"]) == 0
    assert "(paused, halted)" in capsys.readouterr().out
    assert run(["jobs", "resume", "--detach"]) == 0
    assert service.jobs["ftjob-1"]["status"] == "running"
    capsys.readouterr()
    assert run(["jobs", "show"]) == 0
    assert "(an unknown status)" in capsys.readouterr().out
    assert run(["jobs", "cancel"]) == 0
    assert (service.jobs["ftjob-1"]["status"], service.files) == ("cancelled", {})
    assert run(["jobs", "cancel"]) == 2
    assert "has already ended: cancelled" in capsys.readouterr().err


def test_a_job_that_is_cancelled_at_the_service_ends_here_too(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    service.statuses = ["queued", "cancelled"]
    assert sft("--yes") == 1
    printed = capsys.readouterr()
    assert "it was cancelled" in printed.err
    assert "cancelled" in printed.out


def test_a_large_file_goes_in_parts(service: FakeOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_client, "PART_BYTES", 1000)
    monkeypatch.setitem(PROFILES, "openai", replace(PROFILES["openai"], parts_from=100))
    assert sft("--yes") == 0
    rows = (Path("runs") / JOB / "training.jsonl").read_bytes()
    assert len(service.uploads["upload_1"]) == -(-len(rows) // 1000)
    assert service.contents[service.bodies[0]["training_file"]] == rows
    assert UPLOAD not in service.calls


def test_a_wrong_key_is_said_without_the_key(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-key-987654321")
    assert sft("--yes") == 4
    said = capsys.readouterr().err
    assert "check the key in OPENAI_API_KEY" in said
    assert "sk-wrong-key" not in said


def test_a_dry_run_needs_no_key_and_sends_nothing(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    assert sft("--dry-run", fraction="0.1") == 0
    said = capsys.readouterr().err
    assert "OPENAI_API_KEY is not set" in said
    assert "can be created until 2027-01-06" in said
    assert service.calls == []
    assert sft("--yes") == 2
    assert "OPENAI_API_KEY is not set" in capsys.readouterr().err
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert sft("--yes", "--model", "gpt-99", fraction="0.1") == 4
    assert "no model 'gpt-99'" in capsys.readouterr().err
    assert UPLOAD not in service.calls
    assert [path for name in ("runs", "stores") for path in Path(name).rglob("*")] == []


@pytest.mark.parametrize(
    ("options", "train", "words"),
    daily(
        [
            (("--n-epochs", "99"), "episodes", "n_epochs='99'"),
            (("--suffix", "x" * 65), "episodes", "suffix="),
            (("--set", "model=x"), "episodes", "model is not an option"),
            ((), "few", "gives 6 rows, and openai needs at least 10"),
            (("--max-length", "3"), "episodes", "answer is cut off"),
            ((), "two", "none is chosen"),
            (("--train-function", "walk"), "two", "functions: act, plan"),
            (("--val", "episodes"), "episodes", "leak"),
            (
                ("--profile", "azure", "--base-url", "https://me:secret@a.openai.azure.com"),
                "episodes",
                "password",
            ),
        ],
        4,
    ),
)
def test_what_cannot_be_tuned_is_said_before_anything_is_sent(
    service: FakeOpenAI,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    train: str,
    words: str,
) -> None:
    assert sft("--yes", "--unit", "step", *options, train=train) in (1, 2, 4)
    said = capsys.readouterr().err
    assert words in said
    assert "secret" not in said
    assert UPLOAD not in service.calls
    assert not Path("runs").exists() or list(Path("runs").iterdir()) == []


def test_a_model_that_is_shut_down_is_refused_by_the_services_own_date(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    service.models["old"] = {"shutdown_date": "2026-10-23"}
    assert sft("--yes", "--model", "old") == 2
    assert "old was shut down on 2026-10-23" in capsys.readouterr().err


@pytest.mark.full
def test_one_function_of_several_is_tuned_and_the_weights_that_are_lost_are_counted(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sft("--yes", "--train-function", "act", "--unit", "step", train="two") == 0
    said = capsys.readouterr().err
    assert "20 steps of other functions are context only" in said
    assert "left out: 20 partial weights" in said
    rows = [json.loads(line) for line in service.contents[service.bodies[0]["training_file"]].splitlines()]
    assert len(rows) == 20
    assert {row["messages"][-2]["content"].split()[1] for row in rows} == {"1"}
    assert only_job().function == "act"


@pytest.mark.full
def test_azure_gets_its_byte_order_mark_and_tells_its_own_dates(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    service.models["gpt-4.1-mini-2025-04-14"] = {
        "deprecation": {"fine_tune": 4102444800, "inference": 4105123200}
    }
    monkeypatch.setattr(openai_client, "POLL_S", 0.01)
    service.first_status = "pending"  # no job can use it yet
    more = ("--profile", "azure", "--base-url", service.url, "--set", "trainingType=GlobalStandard")
    assert sft("--yes", *more) == 0
    assert "end on 2100-02-01" in capsys.readouterr().err
    (body,) = service.bodies
    assert service.contents[body["training_file"]].startswith(b'\xef\xbb\xbf{"messages"')
    assert body["trainingType"] == "GlobalStandard"
    assert service.files[body["training_file"]]["status"] == "processed"


@pytest.mark.full
def test_nebius_gets_its_hyperparameters_at_the_top_and_no_metadata(
    service: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEBIUS_API_KEY", KEY)
    more = ("--profile", "nebius", "--base-url", service.url, "--model", "Qwen/Qwen3-32B", "--unit", "step")
    assert sft("--yes", *more, "--n-epochs", "2", "--set", "hyperparameters.lora=true") == 0
    (body,) = service.bodies
    assert body["hyperparameters"] == {"n_epochs": 2, "lora": True}
    assert not {"method", "metadata"} & body.keys()


def test_another_address_takes_whatever_model_is_named(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sft", "openai", "--train", "episodes", "--val-fraction", "0", "--yes"]) == 2
    assert "--model NAME" in capsys.readouterr().err
    Path("trajkit.toml").write_text('model = "openai::my-model"\n')
    assert run(["sft", "openai", "--train", "episodes", "--val-fraction", "0", "--yes"]) == 0
    said = capsys.readouterr().err
    assert "does not list my-model" in said
    assert service.bodies[0]["model"] == "my-model"


def test_pairs_become_a_job_of_direct_preference_optimisation(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    played = [
        Episode(
            episode_id=f"e{seed}-{reward}",
            source="test",
            env_id="walk",
            task="go",
            seed=seed,
            total_reward=float(reward),
            steps=(
                Transition(
                    step_index=0,
                    function_name="act",
                    messages=(message("user", f"world {seed}: "),),
                    completion=message("assistant", "left" if reward else "right"),
                    observation=f"world {seed}",
                    action="left" if reward else "right",
                    action_executed="left" if reward else "right",
                ),
            ),
        )
        for seed in range(12)
        for reward in (0, 1)
    ]
    write_episodes(Path("played"), played, kind="test")
    assert run(["pairs", "played", "--score", "total_reward", "--margin", "0.5", "-o", "pairs"]) == 0
    asked = ("--profile", "openai", "--tokenizer", "estimate", "--val-fraction", "0", "--beta", "0.2")
    capsys.readouterr()
    assert run(["dpo", "openai", *asked, "--yes"]) == 0
    assert "beta 0.2" in capsys.readouterr().err
    (body,) = service.bodies
    assert body["method"] == {"type": "dpo", "dpo": {"hyperparameters": {"beta": 0.2}}}
    rows = [json.loads(line) for line in service.contents[body["training_file"]].splitlines()]
    assert len(rows) == 12
    assert {row["preferred_output"][0]["content"] for row in rows} == {"left"}
    assert (only_job().method, only_job().function) == ("dpo", "act")
    service_of = asked[:4]
    assert run(["dpo", "openai", *service_of, "--val-fraction", "0.1", "--beta", "0.2", "--yes"]) == 0
    (learned,) = Path("stores").glob("pairs-*/train")
    capsys.readouterr()
    assert run(["dpo", "openai", *service_of, "--train", str(learned), "--dry-run"]) == 0
    assert f"measured by {learned.with_name('val')}, of the same split" in capsys.readouterr().err
    assert run(["sft", "openai", *service_of, "--train", "pairs", "--val-fraction", "0", "--yes"]) == 1
    assert "pairs is not a store" in capsys.readouterr().err
    assert run(["dpo", "openai", *asked, "--train", "played", "--yes"]) in (1, 2)
    assert "played" in capsys.readouterr().err
