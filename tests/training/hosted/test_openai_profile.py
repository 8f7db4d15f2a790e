"""Who is meant by an address, a profile and the environment; and what OpenAI's answers mean, however odd."""

from __future__ import annotations

import pytest

from trajkit.errors import RequestError
from trajkit.training.hosted.openai.client import address_of
from trajkit.training.hosted.openai.connect import checkpoint_of, day_of, event_of, state_of
from trajkit.training.hosted.openai.recipe import read_recipe, usual_epochs
from trajkit.training.job import JobStatus

VARIABLES = ("OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT", "AWS_REGION", "AWS_DEFAULT_REGION")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("settings", "environment", "profile", "url"),
    [
        ({}, {}, "openai", "https://api.openai.com/v1"),
        ({}, {"OPENAI_BASE_URL": "http://here:1/v1/"}, "other", "http://here:1/v1"),
        (
            {"base_url": "https://r.openai.azure.com/openai/v1"},
            {},
            "azure",
            "https://r.openai.azure.com/openai/v1",
        ),
        (
            {"profile": "azure"},
            {"AZURE_OPENAI_ENDPOINT": "https://r.openai.azure.com/", "OPENAI_BASE_URL": "http://other/v1"},
            "azure",
            "https://r.openai.azure.com/openai/v1",
        ),
        ({"profile": "nebius"}, {}, "nebius", "https://api.tokenfactory.nebius.com/v1"),
        (
            {"profile": "bedrock"},
            {"AWS_REGION": "us-west-2"},
            "bedrock",
            "https://bedrock-mantle.us-west-2.api.aws/v1",
        ),
    ],
)
def test_an_address_says_who_is_meant(
    settings: dict[str, str],
    environment: dict[str, str],
    profile: str,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found, where = address_of(dict(settings))
    assert (found.name, where) == (profile, url)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"profile": "nobody"}, "no profile 'nobody'"),
        ({"profile": "azure"}, "AZURE_OPENAI_ENDPOINT"),
        ({"profile": "bedrock"}, "AWS_REGION"),
        ({"base_url": "api.openai.com"}, "not the address"),
        ({"base_url": "https://me:secret@api.openai.com/v1"}, "holds a password"),
    ],
)
def test_an_address_that_is_none_is_refused(settings: dict[str, str], words: str) -> None:
    with pytest.raises(RequestError) as refused:
        address_of(dict(settings))
    assert words in str(refused.value)
    assert "secret" not in str(refused.value)


def test_answers_with_surprises_are_read() -> None:
    state = state_of({"id": "ftjob-1", "status": "warming_up", "error": {}, "result_files": None})
    assert (state.status, state.said, state.error) == (JobStatus.RUNNING, "warming_up", None)
    assert state_of({"id": "j", "status": "Paused"}).is_paused
    assert state_of({"id": "j", "trained_tokens": "many", "estimated_finish": 1e30}).n_trained_tokens is None
    told = event_of(
        {"id": "e", "type": "metrics", "data": {"step": 3, "train_loss": 0.5}, "message": "Step 3/9: x"}
    )
    assert told.step is not None
    assert (told.step.n_done, told.step.n_total, told.step.loss) == (3, 9, 0.5)
    assert event_of({"id": "e", "data": ["no", "object"], "created_at": None}).step is None
    assert checkpoint_of({"id": "c", "metrics": None}) is None
    assert (day_of("2027-01-14"), day_of("soon"), day_of(None)) == (day_of(1799884800), None, None)


@pytest.mark.parametrize(("n_rows", "n_epochs"), [(10, 10), (3, 25), (100, 3), (10_000, 2), (100_000, 1)])
def test_the_usual_epochs_are_those_of_the_guide(n_rows: int, n_epochs: int) -> None:
    assert usual_epochs(n_rows) == n_epochs


def test_what_is_no_option_goes_to_the_top_of_the_request() -> None:
    recipe = read_recipe({"n_epochs": "4", "trainingType": "Standard"}, method="sft", rules="azure")
    assert (recipe.n_epochs, recipe.extra_body) == (4, {"trainingType": "Standard"})
    with pytest.raises(RequestError, match="has a dot"):
        read_recipe({"suffix": "v1.0"}, method="sft", rules="azure")
    with pytest.raises(RequestError, match="beta"):
        read_recipe({"beta": 0.1}, method="sft", rules="openai")
