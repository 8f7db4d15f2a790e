"""Our client against stand-ins that others wrote: OpenAI's own specification, and a service with a memory.

Prism answers from the specification and refuses what it does not allow; aimock takes a job through its life.
One behind the other, both the requests of a whole job and the answers to them are held against the
specification. The specification is not ours: TRAJKIT_OPENAI_SPEC names the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node_tools import free_port, program, running
from trajkit.errors import ServiceError
from trajkit.training import jobs
from trajkit.training.hosted import launch
from trajkit.training.hosted.openai import client as openai_client
from trajkit.training.hosted.openai.client import OPENAI, OTHER
from trajkit.training.hosted.openai.connect import OpenAIService
from trajkit.training.hosted.prepare import HostedRequest, prepare
from trajkit.training.hosted.remote import Remote
from trajkit.training.hosted.service import Order, Service
from trajkit.training.job import JobStatus
from trajkit.training.runs import Runs

MODEL = "gpt-4o-mini"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setattr(launch, "FIRST_POLL_S", 0.02)
    monkeypatch.setattr(launch, "LONGEST_POLL_S", 0.05)


@pytest.fixture(scope="module")
def specification() -> Path:
    named = os.environ.get("TRAJKIT_OPENAI_SPEC")
    if not named:
        pytest.skip("TRAJKIT_OPENAI_SPEC does not name OpenAI's API specification")
    return Path(named).absolute()


@pytest.fixture(scope="module")
def prism_url(specification: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    command = [str(program("prism")), "mock", str(specification), "-p", str(port), "-h", "127.0.0.1"]
    with running(command, port, tmp_path_factory.mktemp("prism") / "log") as url:
        yield url


@pytest.fixture
def prism(prism_url: str) -> Service:
    return OpenAIService(OPENAI, prism_url)


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("aimock"), free_port()
    (folder / "config.json").write_text('{"llm": {}}')
    command = [str(program("aimock")), "-c", str(folder / "config.json"), "-p", str(port)]
    with running(command, port, folder / "log") as url:
        yield f"{url}/v1"


@pytest.fixture(scope="module")
def between(specification: Path, aimock: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """aimock with Prism before it, which refuses what is not of the specification in either direction."""
    port = free_port()
    command = [str(program("prism")), "proxy", str(specification), aimock, "--errors"]
    log = tmp_path_factory.mktemp("between") / "log"
    with running([*command, "-p", str(port), "-h", "127.0.0.1"], port, log) as url:
        yield url


ORDER = Order(
    mark="a" * 64,
    name="job",
    base=MODEL,
    training_file="file-1",
    validation_file="file-2",
    n_rows=40,
    recipe={"n_epochs": 2, "batch_size": 4, "learning_rate_multiplier": 0.5, "seed": 7, "suffix": "mine"},
)


@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_the_specification_allows_the_jobs_that_we_ask_for(prism: Service, method: str) -> None:
    recipe = ORDER.recipe | ({"beta": 0.1} if method == "dpo" else {})
    created = prism.create(ORDER.model_copy(update={"method": method, "recipe": recipe}))
    assert created.remote_id
    assert prism.create(Order(mark="b" * 64, name="plain", base=MODEL, training_file="file-1", n_rows=10))


def test_the_specification_allows_every_other_call(
    prism: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "training.jsonl"
    rows.write_text('{"messages": []}\n' * 100)
    assert prism.preflight(MODEL).model == MODEL
    assert prism.upload(rows)
    monkeypatch.setattr(openai_client, "PART_BYTES", 1000)
    in_parts = OpenAIService(replace(OPENAI, parts_from=1000), prism.where)
    with pytest.raises(ServiceError, match="gave an answer that is not"):
        in_parts.upload(rows)  # every part was taken; the specification's example of a whole one has no file
    prism.find(ORDER)
    assert prism.status("ftjob-1").remote_id
    assert [event.event_id for event in prism.events("ftjob-1")]
    assert [checkpoint.model for checkpoint in prism.checkpoints("ftjob-1")]
    for act in (prism.cancel, prism.pause, prism.resume):
        assert act("ftjob-1").remote_id
    prism.delete_file("file-1")


@pytest.mark.parametrize("wrong", [{"n_epochs": 99}, {"suffix": "x" * 65}])
def test_the_specification_does_refuse_what_is_wrong(prism: Service, wrong: dict[str, object]) -> None:
    from trajkit.training.hosted.openai.recipe import OpenAIRecipe

    past_our_own_check = OpenAIRecipe.model_construct(**wrong).model_dump(mode="json", warnings=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenAIRecipe, "model_validate", lambda recipe: OpenAIRecipe.model_construct(**recipe))
        with pytest.raises(ServiceError, match="422"):
            prism.create(ORDER.model_copy(update={"recipe": past_our_own_check}))


@pytest.mark.full  # a second Node program; the daily tests of OpenAI take a job through its life
def test_a_job_lives_from_upload_to_result(aimock: str, stores: Path, tmp_path: Path) -> None:
    _life(OpenAIService(OTHER, aimock), stores, tmp_path)


@pytest.mark.full
def test_a_whole_job_keeps_to_the_specification_in_both_directions(
    between: str, stores: Path, tmp_path: Path
) -> None:
    _life(OpenAIService(OTHER, between), stores, tmp_path)


def _life(service: OpenAIService, stores: Path, tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs")
    asked = HostedRequest(
        base=MODEL, train=stores / "episodes", recipe={"suffix": "mine"}, tokenizer="estimate"
    )
    # neither stand-in tells about a model by its name
    prepared = prepare(asked, service, runs, is_dry_run=True)
    job_id = prepared.job.job_id
    jobs.start(runs, job_id)
    messages: list[str] = []
    ended = jobs.follow(runs, job_id, on_message=messages.append, timeout_s=30)
    assert ended.status == JobStatus.SUCCEEDED, ended.error
    assert str(ended.result["model"]).startswith(f"ft:{MODEL}:aimock:mine")
    assert {"queued", "running", "succeeded"} & set(messages)
    remote = Remote.of(ended)
    assert remote.training_file is not None
    goal = tmp_path / "back.jsonl"
    if service.where.endswith("/v1"):  # the specification says that files come as JSON
        service.fetch(remote.training_file, goal)
        assert goal.read_bytes() == (runs.path(job_id) / "training.jsonl").read_bytes()
    rows = (runs.path(job_id) / "training.jsonl").read_text().splitlines()
    assert json.loads(rows[0])["messages"][0]["role"] == "user"
    assert service.find(ORDER.model_copy(update={"training_file": remote.training_file})) is not None
