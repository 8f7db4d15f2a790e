"""A working folder of its own for every test, and what several files ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands.conftest import folder
from tests.publishing.hub_standin import HubStandin, hub_standin
from tests.tiny import make_tiny
from trajkit.stack.clickhouse import ClickHouse

__all__ = ["folder"]


@pytest.fixture
def ask(stack_folder: Path) -> Callable[[str], str]:
    """Ask the database of the local stack."""
    database = ClickHouse.find(stack_folder / ".trajkit" / "stack" / "clickhouse")
    assert database is not None
    return database.ask


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStandin]:
    """A Hub of our own, which is asked without a token."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    with hub_standin() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of random weights, whose folder is named `tiny`."""
    return make_tiny(tmp_path_factory.mktemp("models") / "tiny")
