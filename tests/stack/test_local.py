"""The local stack as a whole: real services, in a working folder of their own."""

from __future__ import annotations

import os
import signal
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from trajkit.errors import ConfigError, StackError
from trajkit.stack.clickhouse import ClickHouse
from trajkit.stack.local import Down, recipe_config, row_counts, start_stack, stop_stack
from trajkit.stack.process import Process, end
from trajkit.stack.state import LocalStack, local_stack, read_state, state_path


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    stop_stack(folder=tmp_path)


def stand_in_address(state: LocalStack) -> str:
    document = tomllib.loads(state.config_file.read_text())
    return str(document["models"]["agent"]["providers"]["stand_in"]["api_base"])


def processes_below(folder: Path) -> list[str]:
    """Command lines of processes that have this folder in them, where the system shows them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


@pytest.mark.full
def test_up_again_down_and_up_on_the_same_data(folder: Path) -> None:
    said: list[str] = []
    first = start_stack(recipe_config(), folder=folder, say=said.append)
    assert [line.split()[0] for line in said] == ["starting", "starting", "opening"]
    assert "not a language model" in said[1]
    assert local_stack(folder) == first
    assert first.is_running
    assert stand_in_address(first) == f"{first.model_url}/v1/"
    with urllib.request.urlopen(f"{first.model_url}/v1/models", timeout=10) as answer:
        assert answer.status == 200
    assert row_counts(first) == {
        "JsonInference": 0,
        "ChatInference": 0,
        "FloatMetricFeedback": 0,
        "BooleanMetricFeedback": 0,
    }

    again = start_stack(recipe_config(), folder=folder)
    assert again == first  # nothing was started or stopped

    # a crash of both, and a row to find again
    database = ClickHouse.find(first.data_folder)
    database.ask("CREATE TABLE tensorzero.mine (n Int32) ENGINE = MergeTree ORDER BY n")
    database.ask("INSERT INTO tensorzero.mine VALUES (7)")
    for process in first.processes:
        end(process, grace_s=0)
    assert local_stack(folder) is None
    state = read_state(folder)
    assert not state.is_running

    second = start_stack(recipe_config(), folder=folder)
    assert second.clickhouse.pid != first.clickhouse.pid
    assert second.clickhouse_url == first.clickhouse_url
    revived = ClickHouse.find(second.data_folder)
    assert revived.ask("SELECT n FROM tensorzero.mine") == "7\n"

    stopped = stop_stack(folder=folder)
    assert [(service.service, service.was_running) for service in stopped.services] == [
        ("ClickHouse", True),
        ("model server", True),
    ]
    assert stopped.deleted is None
    assert not any(process.is_running for process in second.processes)
    assert not state_path(folder).exists()
    assert (second.data_folder / "data").is_dir()
    assert stop_stack(folder=folder) == Down([])

    assert stop_stack(folder=folder, with_data=True) == Down([], second.data_folder)
    assert not second.data_folder.exists()


@pytest.mark.full
def test_what_differs_from_the_last_time_is_changed_and_the_rest_stays(folder: Path) -> None:
    first = start_stack(recipe_config(), folder=folder, mistakes=0.2)

    other = start_stack(recipe_config(), folder=folder, mistakes=0.0)
    assert other.clickhouse == first.clickhouse
    assert other.model_server.mistakes == 0.0
    assert other.model_server.process.is_running
    assert not first.model_server.process.is_running
    assert stand_in_address(other) == f"{other.model_url}/v1/"

    real = start_stack(recipe_config(), folder=folder, model="openai::gpt-4.1-mini")
    assert real.clickhouse == first.clickhouse
    assert real.model_server is None
    assert not other.model_server.process.is_running
    variants = tomllib.loads(real.config_file.read_text())["functions"]["act"]["variants"]
    assert {variant["model"] for variant in variants.values()} == {"openai::gpt-4.1-mini"}

    with pytest.raises(StackError, match="the stack of this folder runs on"):
        start_stack(recipe_config(), folder=folder, data_folder=folder / "elsewhere")
    assert not (folder / "elsewhere").exists()

    with pytest.raises(ConfigError, match="not found in model table"):
        start_stack(recipe_config(), folder=folder, model="no-such-model")
    assert local_stack(folder) == real  # what ran before a failed `up` goes on, with its configuration
    assert real.config_file.exists()


@pytest.mark.full
def test_when_a_step_fails_everything_that_was_started_is_stopped(folder: Path) -> None:
    with pytest.raises(ConfigError, match="not found in model table"):
        start_stack(recipe_config(), folder=folder, model="no-such-model")
    assert processes_below(folder) == []
    assert ClickHouse.find(folder / ".trajkit" / "stack" / "clickhouse") is None
    assert read_state(folder) is None
    assert not (folder / ".trajkit" / "stack" / "config").exists()


def test_a_configuration_that_is_not_there_starts_nothing(folder: Path) -> None:
    with pytest.raises(ConfigError, match="there is no"):
        start_stack(folder / "none.toml", folder=folder)
    assert not (folder / ".trajkit" / "stack" / "clickhouse").exists()


def test_down_leaves_a_process_alone_that_only_has_the_same_id(folder: Path) -> None:
    data = folder / "elsewhere"
    state = start_stack(recipe_config(), folder=folder, data_folder=data, model="openai::gpt-4.1-mini")
    assert state.data_folder == data
    text = state_path(folder).read_text()
    # as if the database had died and its id had gone to this very test
    mine = Process(pid=os.getpid(), birth="long ago", started_at=state.clickhouse.started_at)
    state_path(folder).write_text(text.replace(f'"pid": {state.clickhouse.pid}', f'"pid": {mine.pid}'))
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("it was signalled"))
    try:
        stopped = stop_stack(folder=folder)
    finally:
        signal.signal(signal.SIGTERM, before)
        end(state.clickhouse, grace_s=0)
    assert [service.was_running for service in stopped.services] == [False]
    assert (data / "data").is_dir()


def test_an_unknown_recipe_is_an_error() -> None:
    with pytest.raises(ConfigError, match="there is no recipe 'chess'"):
        recipe_config("chess")
