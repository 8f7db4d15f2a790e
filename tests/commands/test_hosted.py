"""Trainings at services from Python: nothing is sent before a yes, also while an event loop runs."""

from __future__ import annotations

import asyncio

import pytest

import trajkit
from tests.cli.walks import write_walks
from tests.training.hosted import together_standin
from tests.training.hosted.life import quickly
from tests.training.hosted.openai_server import KEY, FakeOpenAI
from tests.training.hosted.together_standin import TogetherStandIn
from trajkit.errors import RequestError

MODEL = "gpt-4.1-mini-2025-04-14"


@pytest.fixture
def openai(folder, monkeypatch):
    """OpenAI on loopback, and a store of walks."""
    write_walks("episodes", loss_weight=0.5)
    quickly(monkeypatch)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with FakeOpenAI() as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.url)
        yield fake


@pytest.mark.full
def test_nothing_is_sent_or_kept_before_a_yes(openai):
    planned = trajkit.sft_openai(model=MODEL, train="episodes", n_epochs=2, dry_run=True)
    assert planned.recipe["n_epochs"] == 2
    with pytest.raises(RequestError, match="the job costs money"):
        trajkit.sft_openai(model=MODEL, train="episodes", n_epochs=2)
    assert openai.jobs == {}
    assert openai.files == {}
    assert trajkit.jobs_list() == []


@pytest.mark.full
def test_a_job_is_created_once_and_followed_under_a_loop(openai):
    async def cell():
        return trajkit.sft_openai(model=MODEL, train="episodes", n_epochs=2, name="tuned", yes=True)

    job = asyncio.run(cell())
    assert (job.status, job.job_id) == ("succeeded", "tuned")
    assert [body["model"] for body in openai.bodies] == [job.base]
    assert trajkit.sft_openai(model=MODEL, train="episodes", n_epochs=2) == trajkit.jobs_show("tuned")
    assert len(openai.jobs) == 1
    assert [each.job_id for each in trajkit.jobs_list()] == ["tuned"]
    assert trajkit.jobs_wait().status == "succeeded"


@pytest.mark.full
def test_another_service_takes_its_own_options(folder, monkeypatch):
    write_walks("episodes", loss_weight=0.5)
    quickly(monkeypatch)
    monkeypatch.setenv("TOGETHER_API_KEY", together_standin.KEY)
    with TogetherStandIn() as together:
        job = trajkit.sft_together(
            train="episodes",
            model=together_standin.MODEL,
            base_url=together.url,
            lora_r=8,
            yes=True,
        )
    assert job.status == "succeeded"
    assert job.recipe["lora_r"] == 8
