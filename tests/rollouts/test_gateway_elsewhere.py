"""Through a gateway that somebody else runs: a double of one over HTTP, with rows in a real ClickHouse."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rollouts.http_gateway import HttpGateway
from trajkit.cli.main import run as run_command
from trajkit.errors import ServiceError
from trajkit.rollouts.faults import FaultKind
from trajkit.rollouts.options import Options
from trajkit.rollouts.session import open_run, prepare
from trajkit.stack.clickhouse import ClickHouse
from trajkit.stack.state import local_stack

ARGUMENTS = ["rollout", "babyai", "--task", "goto", "--variant", "history", "--max-steps", "4", "--yes"]


@pytest.fixture
def elsewhere(stack_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable]:
    """Starts a gateway elsewhere, on the stack's database, and works in an empty folder."""
    stack = local_stack(stack_folder)
    database = ClickHouse.find(stack_folder / ".trajkit" / "stack" / "clickhouse")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("trajkit.rollouts.running.calling._FIRST_WAIT_S", 0.05)
    started = []

    def start(*, knows_database: bool = True, **options):
        started.append(HttpGateway(database.ask, **options))
        monkeypatch.setenv("TENSORZERO_GATEWAY_URL", started[-1].url)
        if knows_database:
            monkeypatch.setenv("TENSORZERO_CLICKHOUSE_URL", stack.clickhouse_url.get_secret_value())
        else:
            monkeypatch.delenv("TENSORZERO_CLICKHOUSE_URL", raising=False)
        return started[-1]

    yield start
    for gateway in started:
        gateway.die()


def test_a_database_that_fails_at_the_end_takes_nothing_from_the_result(
    elsewhere, capsys, monkeypatch
) -> None:
    elsewhere()

    def away(*_: object) -> None:
        raise ServiceError("the database is away")

    monkeypatch.setattr("trajkit.sources.tensorzero.export.prompts.stored_rows", away)
    assert run_command([*ARGUMENTS, "--seeds", "30:32", "-o", "kept"]) == 4
    printed = capsys.readouterr()
    assert printed.out.splitlines()[2].split()[:3] == ["history", "goto", "2"]
    assert "kept  2 episodes" in printed.err
    assert "error: the database is away" in printed.err


def test_rows_that_were_lost_in_silence_are_reported_by_episode_with_code_1(
    elsewhere, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("trajkit.rollouts.gateway.rows.PATIENCE_S", 0.5)
    gateway = elsewhere(loses=lambda kind, number: number in {"inference": (3, 22), "feedback": (2,)}[kind])
    assert run_command([*ARGUMENTS, "--seeds", "10:16", "--concurrency", "2"]) == 1
    said = capsys.readouterr().err
    spoiled = {episode_id for _, episode_id in gateway.lost}
    assert len(gateway.lost) == 3
    for episode_id in spoiled:
        n = [kind for kind, lost in gateway.lost if lost == episode_id]
        n_inferences, n_feedback = n.count("inference"), n.count("feedback")
        noun = "inference" if n_inferences == 1 else "inferences"
        rows = f"{n_inferences} {noun} and {n_feedback} feedback"
        assert f"missing in the database: {rows} of episode {episode_id}" in said.splitlines()
    assert said.count("missing in the database") == len(spoiled)
    assert f"{len(spoiled)} episodes of 6 lost rows" in said


def test_rows_that_only_come_late_are_waited_for(elsewhere, capsys) -> None:
    gateway = elsewhere()
    ask, late = gateway.ask, []

    def slowly(sql: str) -> None:
        timer = threading.Timer(0.4, ask, [sql])
        late.append(timer)
        timer.start()

    gateway.ask = slowly
    assert run_command([*ARGUMENTS, "--seeds", "20:22"]) == 0
    printed = capsys.readouterr()
    assert "every row of 2 episodes is in the database" in printed.err
    assert printed.out.splitlines()[2].split()[:3] == ["history", "goto", "2"]
    for timer in late:
        timer.join()


def test_without_the_database_the_rows_are_not_counted_and_that_is_said(elsewhere, capsys) -> None:
    elsewhere(knows_database=False)
    assert run_command([*ARGUMENTS, "--seeds", "30:31"]) == 0
    assert "rows were not counted" in capsys.readouterr().err


@pytest.mark.timeout(120)
@pytest.mark.parametrize("n_episodes", [12, pytest.param(60, marks=pytest.mark.full)])
def test_a_gateway_that_dies_in_the_middle_of_many_requests_and_comes_back_loses_no_episode(
    elsewhere, n_episodes
) -> None:
    gateway = elsewhere(answer_s=0.05)
    values = {"env_id": "babyai", "tasks": ("goto",), "variants": ("history",), "max_steps": 3}
    seeds = f"100:{100 + n_episodes}"
    session = prepare(Options.model_validate({**values, "seeds": seeds, "concurrency": 50}))

    def fail() -> None:
        while gateway.n["inference"] < n_episodes + 10:
            time.sleep(0.005)
        gateway.die()
        time.sleep(0.3)
        gateway.start()

    failing = threading.Thread(target=fail)
    failing.start()
    played = []
    with open_run(session) as opened:
        opened.play(on_played=played.append)
        failing.join()
        assert opened.journal.n_done == n_episodes
        n_lost = opened.caller.faults
    assert [one.fault for one in played if one.fault] == []
    assert {len(one.steps) for one in played} == {3}
    assert sum(n_lost.values()) > 0
    assert set(n_lost) <= {FaultKind.CONNECTION, FaultKind.UNREADABLE, FaultKind.SERVER}


@pytest.mark.full
def test_a_gateway_that_dies_and_stays_away_ends_the_run_and_the_same_command_goes_on(
    elsewhere, monkeypatch, capsys
) -> None:
    monkeypatch.setattr("trajkit.rollouts.running.calling.OUTAGE_S", 0.5)
    gateway = elsewhere(answer_s=0.02)

    def fail() -> None:
        while gateway.n["inference"] < 22:
            time.sleep(0.005)
        gateway.die()

    failing = threading.Thread(target=fail)
    failing.start()
    command = [*ARGUMENTS, "--seeds", "300:332", "--max-steps", "2", "--concurrency", "8", "--retries", "1"]
    assert run_command(command) == 4
    failing.join()
    first = capsys.readouterr()
    assert "episodes in a row ended by connection" in first.err
    gateway.start()
    assert run_command(command) == 0
    said = capsys.readouterr().err
    assert "done before" in said
    assert "every row of 32 episodes is in the database" in said
    assert "could not be marked" not in said
