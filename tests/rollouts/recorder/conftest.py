"""Real OpenAI clients, and a server on loopback that answers by a script."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

import trajkit
from trajkit.schema import Episode

KEY = "sk-test-0123456789abcdef0123456789abcdef"


def _load(name: str) -> ModuleType:
    """A module beside this one: files of tests are not a package."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"recorder_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def wire() -> ModuleType:
    """Bodies of answers, and the server."""
    return _load("wire")


@pytest.fixture(scope="session")
def running(wire: ModuleType) -> Iterator[Any]:
    server = wire.Server()
    yield server
    server.close()


@pytest.fixture
def server(running: Any) -> Any:
    """The server, with nothing asked and nothing to answer."""
    running.requests, running.headers, running.script, running.reply = [], [], [], None
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
