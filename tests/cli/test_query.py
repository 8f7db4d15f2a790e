from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trajkit.cli.main import run
from trajkit.schema import Episode
from trajkit.store.writer import write_episodes


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    episodes = [
        Episode(
            episode_id=f"ep-{i:03}",
            source="t",
            seed=i,
            task=None if i % 2 else 'a,"b"\nc',
            tags={"n": str(i)},
        )
        for i in range(120)
    ]
    goal = tmp_path_factory.mktemp("store") / "store"
    write_episodes(goal, episodes, kind="test")
    return str(goal)


def test_a_table_shows_every_value_whole(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["query", store, "select episode_id, seed, task from episodes order by seed limit 2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "episode_id  seed  task",
        "----------  ----  --------",
        'ep-000         0  a,"b"\\nc',
        "ep-001         1",
    ]


def test_a_long_table_says_how_many_rows_are_left(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["query", store, "select seed from episodes"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 102
    assert printed.err == "… 20 rows more; --limit 120 prints them all\n"
    assert run(["query", store, "select seed from episodes", "--limit", "120"]) == 0
    printed = capsys.readouterr()
    assert (len(printed.out.splitlines()), printed.err) == (122, "")


def test_json_is_a_row_per_line(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "select seed, tags, sum(seed) over () as total, started_at from episodes order by seed"
    assert run(["query", store, sql, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 120
    assert rows[3] == {"seed": 3, "tags": {"n": "3"}, "total": 7140, "started_at": None}
    assert run(["query", store, "select 1 / 0 as a, ['nan'::double] as b", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None]}


def test_csv_reads_back(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["query", store, "select seed, task from episodes order by seed limit 2", "--csv"]) == 0
    assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [
        ["seed", "task"],
        ["0", 'a,"b"\nc'],
        ["1", ""],
    ]


@pytest.mark.parametrize(
    ("sql", "code", "message"),
    [
        ("select sede from episodes", 2, "error: no column 'sede'"),
        ("copy episodes to 'x.csv'", 2, "error: this is not a SELECT"),
        ("select 1; select 2", 2, "error: 2 statements instead of one SELECT"),
        (
            "select * from read_text('/etc/passwd')",
            2,
            "error: the table function read_text is not allowed in queries",
        ),
    ],
)
def test_a_wrong_query_is_one_line_and_a_hint(
    store: str, capsys: pytest.CaptureFixture[str], sql: str, code: int, message: str
) -> None:
    assert run(["query", store, sql]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(message)
    assert "\nhint: " in printed.err


def test_two_shapes_at_once_are_refused(store: str) -> None:
    assert run(["query", store, "select 1", "--json", "--csv"]) == 2


def test_a_query_of_no_store_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["query", str(tmp_path / "none"), "select 1"]) == 1
    assert "there is no store at" in capsys.readouterr().err


def test_a_query_stops_at_its_time_limit(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["query", store, "select count(*) from range(1000000000000)", "--timeout", "0.5"]) == 2
    assert capsys.readouterr().err == (
        "error: the query took longer than 0.5 s and was stopped\nhint: allow more with --timeout SECONDS\n"
    )


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the memory of a process")
def test_texts_that_functions_make_end_the_query_and_not_the_machine(store: str) -> None:
    sql = "select sum(strlen(repeat(episode_id, 100000000 + seed))) from episodes"
    found = subprocess.run(
        [sys.executable, "-m", "trajkit", "query", store, sql, "--memory", "0.5"],
        text=True,
        capture_output=True,
        timeout=120,
    )
    assert found.returncode == 1
    assert "could not be read: " in found.stderr
    assert found.stderr.endswith("hint: ask for less at a time, or allow more memory\n")


@pytest.mark.full
def test_ctrl_c_ends_a_query_within_a_function_that_cannot_be_stopped(store: str) -> None:
    pattern = (
        "select count(*) from episodes where regexp_matches(repeat('a', 20000) || seed, '(a?){1000}a{1000}b')"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "trajkit", "query", store, pattern],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        time.sleep(4)
        assert process.poll() is None
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
        process.communicate(timeout=10)
        assert process.returncode == 130
    finally:
        process.kill()
        process.communicate()
