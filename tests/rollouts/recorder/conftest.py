"""Real OpenAI clients, and a server on loopback that answers by a script."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

import trajkit
from tests.rollouts.recorder import wire as scripted
from trajkit.schema import Episode

KEY = "sk-test-0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="session")
def wire() -> ModuleType:
    """Bodies of answers, and the server."""
    return scripted


@pytest.fixture(scope="session")
def running(wire: ModuleType) -> Iterator[Any]:
    server = wire.Server()
    yield server
    server.close()


@pytest.fixture
def server(running: Any) -> Any:
    """The server, with nothing asked yet."""
    running.clear()
    return running


@pytest.fixture
def key() -> str:
    return KEY


@pytest.fixture
def client(server: Any) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.url, api_key=KEY, max_retries=0) as made:
        yield made


@pytest.fixture
def async_client(server: Any) -> AsyncOpenAI:
    """Closed by the test, in the loop that used it."""
    return AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def episodes(store: Path) -> Callable[[], list[Episode]]:
    """The episodes of the store, in the order begun."""
    return lambda: sorted(trajkit.open_dataset(store), key=lambda episode: episode.episode_id)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """A block in which the journal cannot be written."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    @contextlib.contextmanager
    def during() -> Iterator[None]:
        with monkeypatch.context() as broken:
            broken.setattr("trajkit.rollouts.recorder.journal.os.write", full)
            yield

    return during
