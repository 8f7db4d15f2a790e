from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.publishing.hub_standin import TOKEN, HubStandin, hub_standin
from trajkit.curation.selection.split import split
from trajkit.publishing.facts import splits_of
from trajkit.publishing.files.contents import Contents, make_contents
from trajkit.publishing.hub import Hub


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubStandin]:
    """A Hub of our own, which every command of the test talks to as somebody who may write."""
    from huggingface_hub import constants

    # both are read when the library is imported, which another test may have done before
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with hub_standin() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield running


@pytest.fixture
def waits() -> list[float]:
    """Seconds that the Hub's client waited instead of sleeping."""
    return []


@pytest.fixture
def hub(standin: HubStandin, waits: list[float]) -> Hub:
    return Hub(SecretStr(TOKEN), endpoint=standin.url, sleep=waits.append)


@pytest.fixture(scope="session")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample in two sides, train and val."""
    goal = tmp_path_factory.mktemp("sides") / "data"
    split("sample:babyai", goal, ratio={"train": 0.8, "val": 0.2})
    return goal


@pytest.fixture(scope="session")
def published(sides: Path, tmp_path_factory: pytest.TempPathFactory) -> Contents:
    """A repository of these sides."""
    return make_contents(splits_of((sides,)), tmp_path_factory.mktemp("repo"))
