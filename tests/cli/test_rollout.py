from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trajkit._settings import remembered
from trajkit.cli.main import run
from trajkit.stack.clickhouse import ClickHouse
from trajkit.stack.gateway_config import prepare_config
from trajkit.stack.local import recipe_config, start_stack, stop_stack
from trajkit.store.reader import open_store

EXPERT = ["rollout", "babyai", "--policy", "expert"]


@pytest.fixture(scope="module")
def stack_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("stack")
    start_stack(recipe_config(), folder=folder)
    try:
        yield folder
    finally:
        stop_stack(folder=folder)


@pytest.fixture
def in_stack_folder(stack_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TENSORZERO_GATEWAY_URL", "TENSORZERO_CLICKHOUSE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(stack_folder)
    return stack_folder


@pytest.fixture
def ask(stack_folder: Path) -> Callable[[str], str]:
    database = ClickHouse.find(stack_folder / ".trajkit" / "stack" / "clickhouse")
    assert database is not None
    return database.ask


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TENSORZERO_GATEWAY_URL", "TENSORZERO_CLICKHOUSE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_the_table_has_a_row_per_task_and_one_over_all(elsewhere, capsys):
    assert run([*EXPERT, "--task", "goto", "--task", "open", "--episodes", "3"]) == 0
    printed = capsys.readouterr()
    heading, rule, *rows = printed.out.splitlines()
    assert heading.split("  ")[0] == "variant"
    assert set(rule) == {"-", " "}
    assert [row.split()[:4] for row in rows] == [
        ["expert", "goto", "3", "1.000"],
        ["expert", "open", "3", "1.000"],
        ["expert", "all", "6", "1.000"],
    ]
    start, end = printed.err.splitlines()
    assert start == "6 episodes of babyai for train: goto, open; expert; seeds 0:3"
    assert re.fullmatch(r"6 of 6 episodes  \d+ steps  6 successes  0 errors  [\d,]+ steps/s  [\d.]+ s", end)


def test_without_a_task_all_five_are_played(elsewhere, capsys):
    assert run([*EXPERT, "--episodes", "1"]) == 0
    rows = [line.split()[1] for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == ["goto", "pickup", "open", "putnext", "pick_up_seq_go_to", "all"]


def test_json_is_a_line_per_episode_and_nothing_else(elsewhere, capsys):
    assert run([*EXPERT, "--task", "goto", "--seeds", "200:202", "--purpose", "eval", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert list(first) == [
        "variant", "task", "seed", "outcome", "episode_return", "progression", "n_steps", "n_input_tokens",
        "n_output_tokens", "n_invalid_answers", "mission", "episode_id", "purpose", "run", "error",
    ]  # fmt: skip
    assert (first["seed"], second["seed"]) == (200, 201)
    assert (first["outcome"], first["progression"], first["purpose"]) == ("success", 1.0, "eval")
    assert first["episode_return"] == pytest.approx(1 - 0.9 * first["n_steps"] / 64)
    assert (first["n_input_tokens"], first["n_invalid_answers"], first["error"]) == (None, 0, None)
    assert first["run"] == second["run"]


def test_a_store_is_written_and_remembered(elsewhere, capsys):
    assert run([*EXPERT, "--task", "goto", "--episodes", "2", "-o", "store"]) == 0
    assert open_store(elsewhere / "store").manifest.counts.n_episodes == 2
    assert remembered("last_store") == {"path": str(elsewhere / "store")}
    assert capsys.readouterr().err.splitlines()[-1].startswith("store  2 episodes  ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rollout", "chess"], "no environment 'chess'"),
        ([*EXPERT, "--task", "fly"], "no task 'fly' in babyai"),
        ([*EXPERT, "--seeds", "9:2"], "no seed from 9"),
        ([*EXPERT, "--seeds", "0:2", "--episodes", "2"], "say it again"),
        ([*EXPERT, "--variant", "history"], "asks no gateway"),
        ([*EXPERT, "--noise", "0.5"], "makes no slips"),
        ([*EXPERT, "--purpose", "test"], "'test' is not one of"),
        ([*EXPERT, "--timeout", "0"], "not in the range"),
        ([*EXPERT, "--concurrency", "0"], "not in the range"),
        (["rollout", "babyai"], "no gateway to play through"),
    ],
)
def test_a_wrong_request_is_refused_with_code_2(arguments, message, elsewhere, capsys):
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert list(elsewhere.iterdir()) == []


def test_a_store_that_exists_is_refused_before_anything_is_played(elsewhere, capsys):
    (elsewhere / "store").mkdir()
    assert run([*EXPERT, "-o", "store"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: store exists already",
        "hint: choose another -o, or remove it first",
    ]


def test_it_plays_through_the_local_stack_as_the_readme_has_it(in_stack_folder, tmp_path, ask, capsys):
    store = tmp_path / "store"
    arguments = ["--task", "goto", "--variant", "history_and_reasoning", "--seeds", "0:3", "-o", str(store)]
    assert run(["rollout", "babyai", *arguments, "--concurrency", "50"]) == 0
    printed = capsys.readouterr()
    (row,) = printed.out.splitlines()[2:]
    assert row.split()[:3] == ["history_and_reasoning", "goto", "3"]
    assert "through the gateway (local stack)" in printed.err
    manifest = open_store(store).manifest
    n_kept = ask(
        f"SELECT count() FROM tensorzero.JsonInference WHERE tags['trajkit.run'] = '{manifest.source['run']}'"
    )
    assert int(n_kept) == manifest.counts.n_steps
    assert "without its prompt" not in printed.err


def test_episodes_that_a_service_spoiled_are_counted_and_the_exit_code_is_1(
    in_stack_folder, tmp_path, nobody, capsys
):
    config = prepare_config(recipe_config(), tmp_path / "config", model_url=nobody)
    arguments = ["--task", "goto", "--variant", "history", "--episodes", "2", "--retries", "0"]
    assert run(["rollout", "babyai", *arguments, "--config", str(config)]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[2].split() == ["history", "goto", "0", "-", "-", "-", "-", "-", "0", "2"]
    assert "2 episodes ended by an error, without feedback: connection: " in printed.err


def test_a_model_that_is_down_ends_the_run_with_code_4(in_stack_folder, tmp_path, nobody, capsys):
    config = prepare_config(recipe_config(), tmp_path / "config", model_url=nobody)
    arguments = ["--variant", "history", "--episodes", "200", "--retries", "0", "--config", str(config)]
    assert run(["rollout", "babyai", *arguments]) == 4
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "error: 5 episodes in a row ended by connection: " in printed.err
    assert "hint: is the model server up?" in printed.err


def test_ctrl_c_leaves_feedback_of_finished_episodes_only_and_no_store(in_stack_folder, ask):
    command = [sys.executable, "-m", "trajkit", "rollout", "babyai", "--variant", "history_and_reasoning"]
    command += ["--episodes", "100", "--concurrency", "8", "--json", "-o", "store"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    lines = [json.loads(line) for line in (first + out).splitlines()]
    assert f"{len(lines)} of 500 episodes finished and logged; the others have no feedback" in err
    assert "no store was written" in err
    assert err.splitlines()[-1] == "error: stopped"
    assert "Traceback" not in err
    assert "Fatal" not in err
    rows = ask(
        "SELECT target_id, count() FROM tensorzero.FloatMetricFeedback "
        f"WHERE tags['trajkit.run'] = '{lines[0]['run']}' GROUP BY target_id"
    )
    assert sorted(rows.splitlines()) == sorted(f"{line['episode_id']}\t2" for line in lines)
    assert [path.name for path in in_stack_folder.iterdir()] == [".trajkit"]
