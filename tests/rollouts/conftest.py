"""The real thing, once for all tests here: ClickHouse, TensorZero's tables, the stand-in model."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from trajkit.rollouts.options import Options
from trajkit.rollouts.records.record import Played
from trajkit.rollouts.session import prepare, run
from trajkit.stack.clickhouse import ClickHouse
from trajkit.stack.gateway_config import prepare_config
from trajkit.stack.local import recipe_config

RECIPE = recipe_config("babyai")

Play = Callable[..., list[Played]]
Ask = Callable[[str], list[list[str]]]


@pytest.fixture
def play_options(in_stack_folder: Path) -> Play:
    """Plays options to the end, whatever other tests have played, and returns the episodes."""

    def play(**options: object) -> list[Played]:
        played: list[Played] = []
        values = {"env_id": "babyai", "tasks": ("goto",), "variants": ("history_and_reasoning",)}
        values |= {"new_run": True} | options
        run(prepare(Options.model_validate(values)), on_played=played.append)
        return played

    return play


@pytest.fixture(scope="session")
def ask(stack_folder: Path) -> Ask:
    """Asks the stack's ClickHouse, rows as lists of texts."""
    database = ClickHouse.find(stack_folder / ".trajkit" / "stack" / "clickhouse")
    assert database is not None

    def rows(sql: str) -> list[list[str]]:
        return [line.split("\t") for line in database.ask(sql).splitlines()]

    return rows


@pytest.fixture
def config_for(tmp_path: Path) -> Callable[[str], Path]:
    """The recipe's configuration with its model at another address."""

    def config(model_url: str) -> Path:
        return prepare_config(RECIPE, tmp_path / "config", model_url=model_url)

    return config


@pytest.fixture
def closed_address() -> str:
    """An address where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


EVERYTHING = {
    "tasks": ("open", "putnext", "pick_up_seq_go_to"),
    "seeds": "1:2",
    "max_steps": 40,
    "purpose": "eval",
    "concurrency": 50,
}


class Recorded:
    """A run, by episode."""

    def __init__(self, played: list[Played]) -> None:
        self.played = played
        self.run = played[0].run
        self.steps = [(one, step) for one in played for step in one.steps]


@pytest.fixture(scope="session")
def everything(stack_folder: Path) -> Recorded:
    """Three tasks at a time, 80 inferences."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TENSORZERO_GATEWAY_URL", "TENSORZERO_CLICKHOUSE_URL"):
            patch.delenv(name, raising=False)
        patch.chdir(stack_folder)
        played: list[Played] = []
        options = Options(env_id="babyai", variants=("history_and_reasoning",), **EVERYTHING)
        run(prepare(options), on_played=played.append)
    return Recorded(played)
