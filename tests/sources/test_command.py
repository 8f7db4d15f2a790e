"""`trajkit export` as it is typed, on a real ClickHouse, with good and with bad requests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from trajkit._core.settings import Project, remembered
from trajkit.cli.main import run as trajkit
from trajkit.sources.tensorzero.connect.url import parse_url
from trajkit.store.reader import open_store, verify


@pytest.fixture
def scored(rows: Any) -> dict[str, str]:
    """Three episodes to train and one of evaluation, by what they are."""
    tags = {"trajkit.purpose": "train"}
    return {
        "good": rows.episode(0.9, tags=tags),
        "exact": rows.episode(0.7, tags=tags),
        "bad": rows.episode(0.2, tags=tags),
        "eval": rows.episode(1.0, tags={"trajkit.purpose": "eval"}),
    }


def stores(folder: Path) -> list[Path]:
    return sorted((folder / "stores").glob("*"))


def test_the_command_runs_as_the_readme_types_it(folder: Path, scored: Any, capsys: Any) -> None:
    assert trajkit(["export", "--metric", "episode_return", "--min", "0.7"]) == 0
    (store,) = stores(folder)
    assert store.name.startswith("episode_return-")
    printed = capsys.readouterr()
    lines = [line.split() for line in printed.out.splitlines()]
    assert ["seen", "4", "8"] in lines
    assert ["left:", "evaluation", "episode", "1", "2"] in lines
    assert ["left:", "not", "episode_return", ">=", "0.7", "1", "2"] in lines
    assert ["kept", "2", "4"] in lines
    assert printed.out.splitlines()[-1].startswith(f"stores/{store.name}  2 episodes  4 steps  digest ")
    assert remembered("last_store") == {"path": str(store)}
    opened = open_store(store)
    verify(opened, deep=True)
    entry = opened.manifest.lineage[0]
    assert entry.verb == "export"
    assert opened.manifest.as_of is not None
    as_of = opened.manifest.as_of.isoformat().replace("+00:00", "Z")
    assert entry.arguments == {"metric": {"episode_return": [0.7, None]}, "as_of": as_of}
    assert entry.n_episodes_in - entry.n_episodes_out == sum(left.n_episodes for left in entry.left)


def test_json_is_the_tally_and_nothing_else_on_stdout(folder: Path, scored: Any, capsys: Any) -> None:
    assert trajkit(["export", "--metric", "episode_return", "--min", "0.7", "--json", "-o", "s"]) == 0
    tally = json.loads(capsys.readouterr().out)
    assert (tally["store"], tally["n_episodes_seen"], tally["n_episodes_kept"]) == ("s", 4, 2)
    assert tally["digest"] == open_store(folder / "s").manifest.digest


def test_a_dry_run_writes_nothing_and_remembers_nothing(folder: Path, scored: Any, capsys: Any) -> None:
    assert trajkit(["export", "--dry-run"]) == 0
    assert "kept" in capsys.readouterr().out
    assert list(folder.iterdir()) == []


def test_evaluation_is_brought_when_asked_for_and_the_manifest_says_so(folder: Path, scored: Any) -> None:
    assert trajkit(["export", "--include-eval", "-o", "all"]) == 0
    manifest = open_store(folder / "all").manifest
    assert manifest.counts.n_episodes == 4
    assert set(manifest.lineage[0].arguments) == {"include_eval", "as_of"}


@pytest.mark.full
def test_bounds_belong_to_the_metric_before_them(folder: Path, rows: Any, scored: Any) -> None:
    rows.float(scored["good"], 0.5, metric="speed")
    rows.float(scored["exact"], 2.5, metric="speed")
    command = "export --metric episode_return --min 0.5 --metric speed --max 1 -o s"
    assert trajkit(command.split()) == 0
    assert open_store(folder / "s").manifest.counts.n_episodes == 1


@pytest.mark.full
def test_the_same_options_filter_a_store(folder: Path, scored: Any, capsys: Any) -> None:
    assert trajkit(["export", "--include-eval", "-o", "all"]) == 0
    direct = trajkit(["export", "--metric", "episode_return", "--min", "0.7", "-o", "direct"])
    again = trajkit(
        ["export", "--source", "all", "--metric", "episode_return", "--min", "0.7", "-o", "again"]
    )
    assert (direct, again) == (0, 0)
    first, second = (open_store(folder / name).manifest for name in ("direct", "again"))
    assert first.digest == second.digest
    assert [entry.verb for entry in second.lineage] == ["export", "export"]
    assert second.lineage[1].parent_digest == open_store(folder / "all").manifest.digest


def test_trajkit_toml_names_source_function_and_stores(
    folder: Path, url: str, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENSORZERO_CLICKHOUSE_URL")
    rows.episode(1.0)
    rows.episode(1.0, function="plan")
    (folder / "trajkit.toml").write_text(f'source = "{url}"\nfunction = "act"\nstores = "kept"\n')
    assert trajkit(["export"]) == 0
    (store,) = (folder / "kept").iterdir()
    assert open_store(store).manifest.counts.n_episodes == 1


def test_the_password_is_in_no_file_and_no_output(folder: Path, url: str, scored: Any, capsys: Any) -> None:
    password = parse_url(url).password
    assert trajkit(["export", "-o", "s"]) == 0
    wrong = url.replace(password, "not-" + password)
    assert trajkit(["export", "--source", wrong]) == 4
    printed = capsys.readouterr()
    assert password not in printed.out + printed.err
    for path in folder.rglob("*"):
        if path.is_file():
            assert password.encode() not in path.read_bytes()


BAD = (
    ("--min 0.7", 2, "--min 0.7 has no --metric before it"),
    ("--metric m --min 2 --max 1", 2, "--min 2 is above --max 1"),
    ("--metric m --min nan", 2, "--min 'nan' is not a finite number"),
    ("--metric m --min inf", 2, "--min 'inf' is not a finite number"),
    ("--metric m --min 1 --min 2", 2, "--metric m has two --min"),
    ("--metric m --metric m", 2, "--metric m is given twice"),
    ("--metric nope", 2, "no metric 'nope' in this database"),
    ("--function nope", 2, "no function 'nope' in this database"),
    ("--variant nope", 2, "no variant 'nope' in this database"),
    ("--tag nope", 2, "--tag 'nope' is not KEY=VALUE"),
    ("--tag a=1 --tag a=2", 2, "--tag a is given twice"),
    ("--since yesterday", 2, "--since 'yesterday' is not a date or a time"),
    ("--since 2026-02-01 --until 2026-01-01", 2, "is not before --until"),
    ("--success maybe", 2, "'maybe' is not METRIC OPERATOR NUMBER"),
    ("--observation-path a..b", 2, "the path 'a..b' is not names joined by dots"),
    ("--metric episode_return --min 5", 1, "not episode_return >= 5: 3"),
    ("-o taken", 1, "taken exists already"),
    ("--source nowhere", 1, "there is no store at nowhere"),
    ("--source ftp://x/y", 2, "ftp:// cannot be read: it needs settings that an address does not hold"),
    ("--source http://u:p@127.0.0.1:1/tensorzero", 4, "cannot be reached"),
    ("--source http://u:p@127.0.0.1:x/tensorzero", 2, "a port that is not a number"),
)


def test_bad_requests_say_what_is_wrong_and_leave_nothing(folder: Path, scored: Any, capsys: Any) -> None:
    (folder / "taken").mkdir()
    for arguments, code, message in BAD:
        assert trajkit(["export", *arguments.split()]) == code, arguments
        printed = capsys.readouterr()
        assert message in printed.err
        assert "Traceback" not in printed.err
        assert printed.out == ""
        assert [path.name for path in folder.iterdir()] == ["taken"]


def test_a_database_without_tensorzeros_tables_is_named_with_what_is_missing(
    folder: Path, url: str, client: Any, capsys: Any
) -> None:
    client.command("CREATE DATABASE IF NOT EXISTS bare")
    assert trajkit(["export", "--source", url.replace("/tensorzero", "/bare")]) == 4
    assert "missing JsonInference, ChatInference" in capsys.readouterr().err
    assert trajkit(["export", "--source", url.replace("/tensorzero", "/nothing")]) == 4
    assert "no database 'nothing'" in capsys.readouterr().err


def test_a_database_that_lost_a_table_says_its_schema_level(
    folder: Path, url: str, client: Any, capsys: Any
) -> None:
    client.command("RENAME TABLE DemonstrationFeedback TO DemonstrationFeedback_away")
    try:
        assert trajkit(["export"]) == 4
    finally:
        client.command("RENAME TABLE DemonstrationFeedback_away TO DemonstrationFeedback")
    assert "(schema level 53): missing DemonstrationFeedback" in capsys.readouterr().err


def test_without_any_source_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TENSORZERO_CLICKHOUSE_URL", raising=False)
    assert trajkit(["export", "--metric", "episode_return", "--min", "0.7"]) == 2
    assert "trajkit up" in capsys.readouterr().err


def test_what_is_wrong_with_trajkit_toml_is_named(folder: Path, capsys: Any) -> None:
    (folder / "trajkit.toml").write_text('sauce = "x"\n')
    assert trajkit(["export"]) == 2
    printed = capsys.readouterr().err
    assert "trajkit.toml: sauce" in printed
    assert f"known keys: {', '.join(sorted(Project.model_fields))}" in printed


def test_ctrl_c_leaves_nothing_and_the_next_export_works(folder: Path, rows: Any) -> None:
    first = rows.episode(0.5)
    rows.copy(first, 8_000)  # so that the export takes a while
    process = subprocess.Popen(
        [sys.executable, "-m", "trajkit", "export", "-o", "s"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    deadline = time.monotonic() + 60
    while not any(path.name.startswith(".s.") for path in folder.iterdir()):
        assert time.monotonic() < deadline, "the export never began to write"
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "error: stopped", errors
    assert list(folder.iterdir()) == []
    assert trajkit(["export", "-o", "s"]) == 0
    assert open_store(folder / "s").manifest.counts.n_steps == 16_002


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are Unix's")
def test_a_full_disk_is_an_error_that_names_the_place_and_leaves_nothing(folder: Path, rows: Any) -> None:
    import resource

    first = rows.episode(0.5, n_steps=1, observation="x" * 5_000)
    noise = "concat(substring(input, 1, length(input) - 1), ',\"noise\":\"', hex(randomString(1000)), '\"}')"
    rows.copy(first, 3_000, input_sql=noise)

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    done = subprocess.run(
        [sys.executable, "-m", "trajkit", "export", "-o", "s"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 1, done.stderr
    error, hint = done.stderr.splitlines()[-2:]
    assert error.startswith("error: "), done.stderr
    assert "could not be written" in error
    assert hint == "hint: the disk may be full, or the folder read-only"
    assert list(folder.iterdir()) == []


@pytest.mark.full
def test_an_export_is_carried_out_again_while_its_database_answers(
    folder: Path, scored: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trajkit(["export", "--metric", "episode_return", "--min", "0.7", "-o", "first"]) == 0
    assert trajkit(["rebuild", "first", "-o", "again"]) == 0
    first, again = (open_store(folder / name).manifest for name in ("first", "again"))
    assert first.digest == again.digest
    assert first.lineage[0].options == again.lineage[0].options
    assert trajkit(["log", "again", "--oneline"]) == 0
    as_of = first.lineage[0].options["as_of"]
    shown = f"trajkit export --metric episode_return --min 0.7 --as-of {as_of}  # 2 of 4 episodes"
    assert shown in capsys.readouterr().out
    monkeypatch.setenv("TENSORZERO_CLICKHOUSE_URL", "http://localhost:1/gone")
    assert trajkit(["rebuild", "first", "-o", "never"]) == 1
    assert "it cannot be rebuilt: the source of the export: " in capsys.readouterr().err
