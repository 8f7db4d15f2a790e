"""A broken or hostile service: what it answers shows no key, chooses no path, and costs no second job."""

from __future__ import annotations

import base64
import contextlib
import copy
import gzip
import json
import os
import random
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.matrix import daily
from tests.training.hosted import together_standin
from tests.training.hosted.life import Ready, Running, everything, order
from tests.training.hosted.loopback import Loopback, Reply
from tests.training.hosted.openai_server import KEY, LOSSES, FakeOpenAI
from tests.training.hosted.test_openai import CREATE, JOB, LIST, MODEL, UPLOAD, only_job, sft
from tests.training.hosted.together_standin import TogetherStandIn
from trajkit.cli.main import run
from trajkit.errors import TrajkitError
from trajkit.training.hosted import answer as answers
from trajkit.training.hosted import creation, launch, outcome
from trajkit.training.hosted.openai.client import OPENAI
from trajkit.training.hosted.openai.connect import OpenAIService
from trajkit.training.hosted.remote import Remote
from trajkit.training.hosted.together import connect as together
from trajkit.training.job import JobStatus
from trajkit.training.runs import Runs

SHOW = "GET /fine_tuning/jobs/ftjob-1"


def changed(value: Any, change: Callable[[str, Any], Any], name: str = "") -> Any:
    """JSON with every value changed by its name."""
    if isinstance(value, dict):
        return {key: changed(each, change, key) for key, each in value.items()}
    if isinstance(value, list):
        return [changed(each, change, name) for each in value]
    return change(name, value)


def a_short_lag(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.3) -> None:
    monkeypatch.setattr(creation, "FIRST_LOOK_S", 0.05)
    monkeypatch.setattr(OpenAIService, "listing_lag_s", seconds)


WORDS = ("message", "suffix", "fine_tuned_model", "result_files", "organization_id", "said", "level", "model")


@pytest.mark.parametrize("end", daily(["succeeded", "failed"], 1))
def test_a_key_that_openai_repeats_is_neither_shown_nor_written(
    service: FakeOpenAI,
    end: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    service.statuses = ["running", end]
    service.error = {"code": f"code {KEY}", "message": f"no {KEY}", "param": None}
    service.contents["file-result"] = base64.b64encode(f"step,{KEY}\n1,2\n".encode())

    def repeat(name: str, value: Any) -> Any:
        return f"{value} b'Bearer {KEY}'" if name in WORDS and isinstance(value, str) else value

    service.mangle = lambda call, answer: (
        changed(answer, repeat) if "events" in call or call == SHOW else answer
    )
    assert sft("--yes") == (0 if end == "succeeded" else 1)
    for command in (["jobs", "list", "--json"], ["jobs", "show"], ["jobs", "show", "--json"]):
        assert run(command) == 0
    printed = capsys.readouterr()
    assert "***" in printed.err + printed.out
    assert KEY not in printed.err + printed.out + everything(tmp_path)


def test_a_key_in_a_refusal_is_not_in_the_traceback_of_debug(service: FakeOpenAI, tmp_path: Path) -> None:
    service.refused[CREATE] = (400, {"error": {"message": f"bad {KEY}", "param": repr(KEY)}})
    asked = ("--profile", "openai", "--train", "episodes", "--val-fraction", "0", "--tokenizer", "estimate")
    done = command("--debug", "sft", "openai", *asked, "--yes")
    assert done.returncode != 0
    assert "bad ***" in done.stderr
    assert KEY not in done.stdout + done.stderr + everything(tmp_path / "runs")


@pytest.mark.parametrize(
    "name",
    daily(["/tmp/{}/escaped", "../../escaped", "..", "a\0b", ".hidden", "C:\\escaped", "x/y"], 1),
)
def test_a_result_file_whose_name_is_a_path_is_not_written(
    service: FakeOpenAI, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = name.format(tmp_path.name)
    service.mangle = lambda call, answer: (
        {**answer, "result_files": [hostile, "file-result"]}
        if call == SHOW and answer["result_files"]
        else answer
    )
    assert sft("--yes") == 0
    assert "a result file is not fetched: the name of a result file cannot be" in capsys.readouterr().err
    results = Path("runs") / JOB / "results"
    assert [path.name for path in results.iterdir()] == ["file-result.csv"]
    assert (results / "file-result.csv").read_text() == LOSSES
    assert not [path for path in tmp_path.rglob("*") if "escaped" in path.name or path.name == "y.csv"]
    assert not Path(f"/tmp/{tmp_path.name}").exists()
    n_calls = len(service.calls)
    assert run(["jobs", "show"]) == 0
    assert len(service.calls) == n_calls, "what cannot be fetched is not asked for again"


DEEP = json.loads("[" * 300 + "]" * 300)
TOO_DEEP = b'{"id": "ftjob-1", "hyperparameters": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


BAD_ANSWERS: dict[str, Callable[[Any], Any]] = {
    "no text": lambda answer: {**answer, "id": 7},
    "NUL": lambda answer: {**answer, "id": "ft\0"},
    "a path": lambda answer: {**answer, "id": "../files"},
    "a query": lambda answer: {**answer, "id": "ft?x=1"},
    "a fragment": lambda answer: {**answer, "id": "ft#1"},
    "a key": lambda answer: {**answer, "id": KEY},
    "no id": lambda answer: {"object": "fine_tuning.job"},
    "too deep": lambda answer: TOO_DEEP,
    "cut off": lambda answer: b'{"id": "ftjob-1", "status": ',
    "a list": lambda answer: [answer],
    "half a pair": lambda answer: {**answer, "id": "\ud800"},
}


@pytest.mark.parametrize("bad", daily(BAD_ANSWERS, ["a path", "too deep"]))
def test_a_job_that_was_paid_for_is_found_again_whatever_its_creation_answered(
    service: FakeOpenAI, bad: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_short_lag(monkeypatch)
    service.lag_s = 3600.0
    service.mangle = lambda call, answer: BAD_ANSWERS[bad](answer) if call == CREATE else answer
    assert sft("--yes") == 4
    said = capsys.readouterr().err
    assert "not the API's" in said
    assert f"trajkit jobs resume {JOB}" in said
    job = only_job()
    assert (job.status, Remote.of(job).is_asked_for) == ("prepared", True)
    told = [event for event in Runs(Path("runs")).events(JOB) if "answer" in event]
    assert len(told) == 1
    assert 0 < len(told[0]["answer"]) <= 20_000
    assert run(["jobs", "show"]) == 0
    assert run(["jobs", "list"]) == 0
    service.lag_s = 0.0
    assert run(["jobs", "resume"]) == 0
    assert only_job().status == "succeeded"
    assert only_job().error is None
    assert (len(service.jobs), service.calls.count(UPLOAD)) == (1, 1)


@pytest.mark.full
def test_a_job_that_is_listed_under_no_id_is_named_and_not_made_again(
    service: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_short_lag(monkeypatch)

    def rename(call: str, answer: Any) -> Any:
        return changed(answer, lambda key, value: "../files" if value == "ftjob-1" else value)

    service.mangle = rename
    assert sft("--yes") == 4
    assert run(["jobs", "resume"]) == 4
    assert "not the API's" in capsys.readouterr().err
    assert service.calls.count(CREATE) == 1
    assert not [call for call in service.calls if ".." in call]
    service.mangle = lambda call, answer: answer
    assert run(["jobs", "resume"]) == 0
    assert len(service.jobs) == 1


def test_a_listing_that_is_none_is_no_proof_that_there_is_no_job(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    service.mangle = lambda call, answer: "a page of somebody's proxy" if call == LIST else answer
    assert sft("--yes") == 4
    assert "not the API's" in capsys.readouterr().err
    client = OpenAIService(OPENAI, service.url)
    for nothing in ({"error": "later"}, {"data": "none"}, [], 7):
        service.mangle = lambda call, answer, nothing=nothing: nothing if call == LIST else answer
        with pytest.raises(TrajkitError, match="not the API's"):
            client.find(order(MODEL, "file-1"))
    assert service.jobs == {}


def test_an_uploaded_file_whose_id_is_a_path_is_not_used(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    service.mangle = lambda call, answer: {**answer, "id": "../models/ft:mine"} if call == UPLOAD else answer
    assert sft("--yes") == 4
    assert not [call for call in service.calls if call.startswith("DELETE")]
    assert service.jobs == {}


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return warm.trajkit(words, Path.cwd(), os.environ | environment)


@pytest.mark.full
def test_two_folders_at_once_make_one_job_while_the_listing_lags(service: FakeOpenAI) -> None:
    service.lag_s = 3600.0
    service.statuses = ["running"]
    words = ["sft", "openai", "--profile", "openai", "--train", "episodes", "--val-fraction", "0"]
    words += ["--tokenizer", "estimate", "--yes", "--detach", "--runs"]
    with ThreadPoolExecutor() as both:
        done = list(both.map(lambda folder: command(*words, folder), ("first", "second")))
    assert [each.returncode for each in done] == [0, 0], done
    assert (len(service.jobs), service.calls.count(CREATE), service.calls.count(UPLOAD)) == (1, 1, 1)
    remotes = [Remote.of(next(Runs(Path(folder)).all())).state for folder in ("first", "second")]
    assert [state.remote_id for state in remotes if state is not None] == ["ftjob-1", "ftjob-1"]


@pytest.mark.full
def test_a_lost_answer_and_a_listing_that_lags_longer_than_a_resume_ask_before_a_second_job(
    service: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_short_lag(monkeypatch)
    service.lag_s = 3600.0
    service.broken[CREATE] = 1
    assert sft("--yes") == 4
    said = capsys.readouterr().err
    assert "both may cost money" in said, "the plan says it"
    assert "checking whether" in said
    for again in (["jobs", "resume"], ["jobs", "resume", "--detach"]):
        assert run(again) == 2
    assert sft("--yes") == 2
    assert sft("--yes", "--runs", "second") == 2, "the same in another folder of this machine"
    said = capsys.readouterr().err
    assert "is not listed: another one may cost twice" in said
    assert "--again" in said
    assert service.calls.count(CREATE) == 1
    service.lag_s = 0.0
    assert run(["jobs", "resume"]) == 0
    assert len(service.jobs) == 1


@pytest.mark.full
def test_a_job_that_may_be_there_is_made_again_only_when_that_is_asked_for(
    service: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_short_lag(monkeypatch)
    service.refused[CREATE] = (502, {"error": {"message": "bad gateway"}})
    assert sft("--yes") == 4
    service.refused.clear()
    assert run(["jobs", "resume"]) == 2
    assert service.jobs == {}
    assert run(["jobs", "cancel"]) == 0
    assert "which does not list it" in capsys.readouterr().err
    assert sft("--yes") == 2, "nor after it was given up here"
    assert sft("--yes", "--name", "other", "--runs", "other") == 2
    assert run(["jobs", "resume", "other", "--runs", "other", "--again"]) == 0
    assert len(service.jobs) == 1


@pytest.mark.full
def test_a_service_that_says_that_it_is_busy_has_made_no_job(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    for status in (429, 503):
        service.refused[CREATE] = (status, {"error": {"message": "too busy", "code": None}})
        assert sft("--yes") == 4
    service.refused.clear()
    assert run(["jobs", "resume"]) == 0
    assert len(service.jobs) == 1


@pytest.mark.parametrize("call", daily([CREATE, SHOW, UPLOAD, LIST, f"GET /models/{MODEL}"], 1))
def test_a_redirect_is_not_followed(
    service: FakeOpenAI, call: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch, "PATIENCE_S", 0.0)
    with Loopback(lambda request: Reply({"id": "ftjob-9", "status": "succeeded", "data": []})) as other:
        service.moved[call] = f"{other.url}/v1{call.partition(' ')[2]}"
        assert sft("--yes") == 4
        assert other.requests == []
    assert "which is not followed" in capsys.readouterr().err


@pytest.mark.full
def test_a_tuned_model_that_repeats_the_key_or_sends_the_prompt_elsewhere_is_heard_without(
    service: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sft("--yes") == 0
    asked = ["try", JOB, "episodes", "0:1", "--yes"]
    said = {"role": "assistant", "content": f"go, said {KEY}"}
    chosen = {"index": 0, "finish_reason": "stop", "message": said}
    service.refused["POST /chat/completions"] = (200, {"id": KEY, "model": KEY, "choices": [chosen]})
    capsys.readouterr()
    assert run([*asked, "--json"]) == 0
    printed = capsys.readouterr()
    assert "go, said ***" in printed.out
    assert KEY not in printed.out + printed.err
    service.refused["POST /chat/completions"] = (404, {"error": {"message": f"no {KEY}"}})
    assert run(asked) == 4
    assert KEY not in "".join(capsys.readouterr())
    with Loopback(lambda request: Reply({"choices": [chosen]})) as stranger:
        service.moved["POST /chat/completions"] = f"{stranger.url}/v1/chat/completions"
        assert run(asked) == 4
        assert stranger.requests == []


def test_an_answer_that_is_too_long_is_not_read(
    service: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.01)
    monkeypatch.setattr(launch, "PATIENCE_S", 0.0)
    assert sft("--yes", "--detach") == 0
    monkeypatch.setattr(answers, "MOST_BYTES", 1 << 20)
    service.mangle = lambda call, answer: {**answer, "note": "x" * 1_100_000} if call == SHOW else answer
    assert run(["jobs", "show"]) == 4
    assert "sends an answer of more than 1 MiB" in capsys.readouterr().err
    service.mangle = lambda call, answer: answer
    assert run(["jobs", "wait"]) == 0


@pytest.mark.full
def test_a_service_that_tells_without_end_fills_no_disk(
    service: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(outcome, "MOST_EVENTS", 30)
    n_told = 0

    def endless(call: str, answer: Any) -> Any:
        nonlocal n_told
        if not call.endswith("/events"):
            return answer
        n_told += 20
        told = [{"id": f"e{n_told + n}", "message": "x" * 5_000, "created_at": n_told} for n in range(20)]
        return {"object": "list", "data": told, "has_more": n_told % 200 != 0}

    service.mangle = endless
    assert sft("--yes") == 0
    events = Runs(Path("runs")).events(JOB)
    assert len(events) <= 32
    assert "further ones are not recorded" in events[-1]["message"]
    assert max(len(event["message"]) for event in events) == 1_000


def test_pages_that_never_end_are_left_at_a_bound_and_deep_parameters_are_cut(
    service: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trajkit.training.hosted.openai.connect._MOST_JOBS", 250)
    number = 0

    def endless(call: str, answer: Any) -> Any:
        nonlocal number
        if call in (CREATE, SHOW):
            return {**answer, "hyperparameters": {"a": DEEP}, "seed": 10**400}
        if call != LIST or answer.get("data", [{}])[:1] == [{"id": "ftjob-old"}]:
            return answer
        number += 100
        jobs = [{"id": f"ftjob-o{number + n}", "status": "running", "object": "x"} for n in range(100)]
        return {"object": "list", "data": jobs, "has_more": True}

    service.mangle = endless
    begun = time.monotonic()
    assert sft("--yes") == 0
    assert number < 3_000
    assert time.monotonic() - begun < 60
    assert len(service.jobs) == 1
    assert run(["jobs", "show", "--json"]) == 0
    assert only_job().status == "succeeded"


def test_a_compressed_answer_is_bounded_by_what_it_becomes() -> None:
    bomb = gzip.compress(b"[" + b" " * (answers.MOST_BYTES + 1_000_000) + b"]")
    with Loopback(lambda request: Reply(bomb, headers={"Content-Encoding": "gzip"})) as server:
        import httpx2

        with (
            answers.client(httpx2.Client, None) as http,
            pytest.raises(TrajkitError, match="more than 32 MiB"),
        ):
            http.get(server.url)


@pytest.fixture
def other(running: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    """A service with an API of its own."""
    a_short_lag(monkeypatch)
    monkeypatch.setattr(together.Together, "listing_lag_s", 0.3)
    monkeypatch.setenv(running.case.variable, f"{running.case.key}\n")
    return running


@pytest.mark.parametrize(
    "bad",
    daily(["a path", "too deep", "no id", "NUL", "a query", "a fragment", "cut off", "a list"], 1),
)
def test_a_job_that_was_paid_for_elsewhere_is_found_again_too(other: Running, job: Ready, bad: str) -> None:
    def spoil(call: str, answer: Any) -> Any:
        if call != other.case.create:
            return answer
        spoiled = BAD_ANSWERS[bad](answer)
        is_named = isinstance(spoiled, dict) and "name" in answer
        return {**spoiled, "name": spoiled.get("id", "")} if is_named else spoiled

    other.server.mangle = spoil
    launch.start(*job)  # the listing knows it under a good id
    assert job.runs.load(job.job_id).status == JobStatus.RUNNING
    assert "answer" in "".join((job.folder / "events.jsonl").read_text())
    assert launch.follow(*job).status == JobStatus.SUCCEEDED
    assert len(other.server.jobs) == 1


@pytest.mark.full
@pytest.mark.parametrize("end", [0, 1])
def test_a_key_that_is_repeated_elsewhere_is_neither_shown_nor_written(
    other: Running, job: Ready, end: int
) -> None:
    said: list[str] = []
    other.server.why = f"no {other.case.key}"
    if end:
        name = "user_error" if isinstance(other.server, TogetherStandIn) else "FAILED"
        other.server.life = (*other.server.life[:3], name)
    words = (*WORDS, "model_output_name", "outputModel", "object_name", "type", "displayName")

    def repeat(name: str, value: Any) -> Any:
        return f"{value}{other.case.key}" if name in words and isinstance(value, str) else value

    other.server.mangle = lambda call, answer: changed(answer, repeat) if call.startswith("GET") else answer
    launch.start(*job)
    done = launch.follow(*job, on_message=said.append)
    assert done.status == (JobStatus.FAILED if end else JobStatus.SUCCEEDED)
    assert "***" in everything(job.folder)
    assert other.case.key not in everything(job.folder) + done.model_dump_json() + "".join(said)


def test_the_rows_go_to_no_host_that_storage_sends_them_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOGETHER_API_KEY", together_standin.KEY)
    rows = tmp_path / "training.jsonl"
    rows.write_text('{"messages": []}\n')
    with Loopback(lambda request: Reply()) as stranger, TogetherStandIn() as server:
        service = together.connect({"base_url": server.url})
        server.refuse["PUT /storage/file-1"] = Reply(None, 307, {"Location": f"{stranger.url}/take"})
        with pytest.raises(TrajkitError, match="rows are sent to no other host"):
            service.upload(rows)
        server.refuse["PUT /storage/file-1"] = Reply(None, 307, {"Location": f"{server.url}/storage/moved"})
        server.contents["file-1"] = b""
        server.refuse["PUT /storage/moved"] = Reply(b"", headers={"ETag": '"1"'})
        service._rest.put(  # on the same host it goes on
            f"{server.url}/storage/file-1", rows, start=0, n_bytes=17, headers={}, on_sent=lambda n, of: None
        )
        assert stranger.requests == []


def test_an_address_without_encryption_is_not_taken_from_a_service_that_has_it() -> None:
    service = together.connect({"base_url": "https://api.together.example"})
    for address in ("http://api.together.example/x", "file:///etc/passwd", "ftp://x", "", "http://["):
        with pytest.raises(TrajkitError, match="gave"):
            service._rest.text(address)


JUNK = (
    None,
    True,
    -1,
    10**30,
    1e308,
    "",
    "\0",
    "\ud800",
    "../x",
    "a" * 20_000,
    [],
    {},
    [[]],
    {"id": []},
    DEEP,
)


@pytest.mark.parametrize("seed", daily(range(40), 4))
def test_no_answer_ends_in_a_traceback_or_a_second_job(other: Running, job: Ready, seed: int) -> None:
    chance = random.Random(seed)

    def spoil(call: str, answer: Any) -> Any:
        if chance.random() < 0.7 or not answer:
            return answer
        spoiled = copy.deepcopy(answer)
        place: Any = spoiled
        while True:
            key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if not isinstance(place[key], dict | list) or not place[key] or chance.random() < 0.3:
                place[key] = chance.choice(JUNK)
                return spoiled
            place = place[key]

    other.server.mangle = spoil
    for step in (launch.start, launch.refreshed, launch.refreshed, launch.resume, launch.refreshed):
        with contextlib.suppress(TrajkitError):
            step(*job)
        Remote.of(job.runs.load(job.job_id))
    other.server.mangle = lambda call, answer: answer
    if job.runs.load(job.job_id).status not in (JobStatus.FAILED, JobStatus.CANCELLED):
        launch.resume(*job)
        launch.follow(*job, timeout_s=10)
    assert len(other.server.jobs) <= 1
