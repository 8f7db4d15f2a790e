"""A small store, and a service on loopback that answers at once."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.training.hosted.life import CASES, ROW, Begin, Ready, Running, quickly, ready
from tests.training.hosted.openai_server import KEY, FakeOpenAI
from trajkit.schema import Episode, Transition, message
from trajkit.store.writer import write_episodes
from trajkit.training.hosted import launch


def episode(name: str, seed: int, *, functions: tuple[str, ...] = ("act",), weight: float = 1.0) -> Episode:
    steps = tuple(
        Transition(
            step_index=i,
            function_name=functions[i % len(functions)],
            variant_name="plain",
            messages=(message("user", f"turn {i} of {name}: "),),
            completion=message("assistant", "go"),
            loss_weight=weight,
        )
        for i in range(2)
    )
    return Episode(episode_id=name, source="test", env_id="walk", task="go", seed=seed, steps=steps)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine knows of jobs is this test's alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`episodes` (20), `few` (3), and `two`, whose steps are of two functions."""
    folder = tmp_path_factory.mktemp("stores")
    write_episodes(folder / "episodes", [episode(f"e{n}", n) for n in range(20)], kind="test")
    write_episodes(folder / "few", [episode(f"e{n}", n) for n in range(3)], kind="test")
    two = [episode(f"e{n}", n, functions=("plan", "act"), weight=0.5) for n in range(20)]
    write_episodes(folder / "two", two, kind="test")
    return folder


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A file that every service takes."""
    path = tmp_path / "training.jsonl"
    path.write_text(f"{json.dumps(ROW)}\n" * 50)
    return path


@pytest.fixture
def service(tmp_path: Path, stores: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeOpenAI]:
    """OpenAI on loopback, with the key and the address in the environment, in an empty working folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("episodes", "few", "two"):
        (tmp_path / name).symlink_to(stores / name, target_is_directory=True)
    monkeypatch.setattr(launch, "FIRST_POLL_S", 0.01)
    monkeypatch.setattr(launch, "LONGEST_POLL_S", 0.02)
    with FakeOpenAI() as fake:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", fake.url)
        yield fake


@pytest.fixture(scope="session")
def begin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Begin]:
    """Start a service with an API of its own and prepare a job for it, once; then forget what was asked."""
    with ExitStack() as stack:

        @functools.cache
        def started(name: str) -> Running:
            case = CASES[name]
            server = stack.enter_context(case.start())
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(case.variable, case.key)
                service = case.connect({"base_url": server.url})
                job = ready(service, tmp_path_factory.mktemp(name), case.base, **{case.epochs: 2})
            return Running(case, server, job)

        def again(name: str, monkeypatch: pytest.MonkeyPatch) -> Running:
            running = started(name)
            quickly(monkeypatch)
            monkeypatch.setenv(running.case.variable, running.case.key)
            for variable in (f"{name.upper()}_BASE_URL", "FIREWORKS_ACCOUNT_ID"):
                monkeypatch.delenv(variable, raising=False)
            running.server.reset()
            return running

        yield again


@pytest.fixture(params=CASES)
def running(request: pytest.FixtureRequest, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> Running:
    """Each service with an API of its own."""
    return begin(request.param, monkeypatch)


@pytest.fixture
def job(running: Running, tmp_path: Path) -> Ready:
    """A job that is prepared for it."""
    return running.prepared.copied(tmp_path / "runs")
