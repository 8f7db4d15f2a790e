"""A real server of the tiny base model and an adapter, and clients of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest

from tests.adapters import make_adapter
from tests.warm import Forked

ROOT = Path(__file__).parents[3]


class Running(NamedTuple):
    """A `trajkit serve` that takes requests."""

    url: str
    models: list[str]
    process: Forked
    said: dict[str, Any]
    talk: Path

    def client(self, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url, api_key=key, max_retries=0, timeout=60)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End it, and tell its exit code and what it said on stderr."""
        os.kill(self.process.pid, number)
        return self.process.wait(), self.talk.read_text(encoding="utf-8")


@contextlib.contextmanager
def serving(*arguments: str, program: str = "", **environment: str) -> Iterator[Running]:
    """Run `trajkit serve`, or a program that does so, on a free port."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        for each in (out, err):
            each.touch()
        variables = os.environ | {"OMP_NUM_THREADS": "1"} | environment
        command = ["serve", *arguments, "--port", "0", "--json"]
        asked = ("-c", [program, *command]) if program else (None, command)
        process = Forked(*asked, ROOT, variables, ("/dev/null", str(out), str(err)))
        try:
            deadline = time.monotonic() + 120  # a server that never says that it is ready
            while not out.read_text(encoding="utf-8").endswith("\n"):
                assert process.poll() is None, err.read_text(encoding="utf-8")
                assert time.monotonic() < deadline
                time.sleep(0.02)
            said = json.loads(out.read_text(encoding="utf-8"))
            yield Running(said["url"], said["models"], process, said, err)
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()


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
