"""A real server of the tiny base model and an adapter, and clients of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest

from tests.adapters import make_adapter

ROOT = Path(__file__).parents[3]


class Running(NamedTuple):
    """A `trajkit serve` that takes requests."""

    url: str
    models: list[str]
    process: subprocess.Popen[str]
    said: dict[str, Any]

    def client(self, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url, api_key=key, max_retries=0, timeout=60)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End it, and tell its exit code and what it said on stderr."""
        self.process.send_signal(number)
        _, talk = self.process.communicate(timeout=60)
        return self.process.returncode, talk


@contextlib.contextmanager
def serving(*arguments: str, **environment: str) -> Iterator[Running]:
    """Run `trajkit serve` on a free port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trajkit", "serve", *arguments, "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )
    watch = threading.Timer(120, process.kill)  # a server that never says that it is ready
    watch.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        watch.cancel()
        assert line, process.communicate()[1]
        said = json.loads(line)
        yield Running(said["url"], said["models"], process, said)
    finally:
        watch.cancel()
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_adapter("sample:tiny-base", tmp_path_factory.mktemp("adapters") / "tuned")


@pytest.fixture(scope="session")
def server(adapter: str) -> Iterator[Running]:
    """One for all tests of a worker, those that attack it too: whatever is asked, it ends well."""
    with serving(adapter, "--base", "sample:tiny-base", "--name", "tuned") as running:
        yield running
        assert running.process.poll() is None
        code, talk = running.end()
        assert (code, "Traceback" in talk) == (0, False), talk


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    with server.client() as made:
        yield made
