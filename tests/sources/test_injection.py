"""Names that try to be more than names: they only ever match themselves, and change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import clickhouse_connect
import pytest

from tests.matrix import daily
from trajkit.cli.main import run as trajkit
from trajkit.sources.tensorzero.look import look
from trajkit.store.dataset import open_dataset

NAMES = {
    "quote": "o'clock",
    "two quotes": "it''s",
    "double quote": 'so "called"',
    "backslash": "back\\slash",
    "backslash at the end": "ends with \\",
    "backslash and quote": "\\' OR 1=1 -- ",
    "semicolon": "'; DROP TABLE JsonInference; --",
    "union": "act' UNION ALL SELECT * FROM system.users --",
    "comment": "act /* not */ -- a comment",
    "placeholder": "{functions:Array(String)}",
    "percent": "100%s %(name)s %%",
    "dollar": "$1 $$ ${HOME}",
    "backtick": "`id`",
    "brackets": "act'] OR ['x",
    "line break": "two\nlines",
    "tab": "a\ttab",
    "carriage return": "a\rreturn",
    "escape": "\x1b[31mred\x1b[0m",
    "unicode": "naïve 名 \U0001f916",
    "combining": "e\u0301 is not \u00e9",
    "right to left": "\u202egnorts",
    "wildcards": "a_t%*?",
    "path": "../../etc/passwd",
    "json path": '$."a"."b"',
    "blanks": "  act  ",
    "equals": "a=b=c",
    "true": "true",
    "null": "NULL",
    "long": "x" * 3_000,
}

IN_DAILY_WORK = {"backslash and quote", "line break"}
CASES = [
    pytest.param(text, id=name, marks=[] if name in IN_DAILY_WORK else pytest.mark.full)
    for name, text in NAMES.items()
]


def near(name: str) -> list[str]:
    """Names that must not be taken for it."""
    return [name[:-1] or "y", f"{name}x"]


def key_of(name: str) -> str:
    """A tag's key: on the command line it ends at the first =."""
    return name.replace("=", "~")


class Named(NamedTuple):
    """A database in which everything has such a name; who reads it may do everything."""

    url: str
    episodes: dict[str, str]
    """By name."""
    contents: Callable[[], list[tuple[str, int]]]
    """Its tables, each with its number of rows."""


@pytest.fixture(scope="module")
def named(rows_of: Any, server: Any) -> Iterator[Named]:
    rows, _ = rows_of("named")
    url = server.url_for(server.user, database="named")
    episodes = {}
    others = sorted({other for name in NAMES.values() for other in near(name)} - set(NAMES.values()))
    for name in (*NAMES.values(), *others):
        tags = {key_of(name): name} if name in NAMES.values() else {name: "near"}
        episode_id = rows.episode(None, n_steps=1, calls=0, function=name, variant=name, tags=tags)
        rows.float(episode_id, 0.5, metric=name)
        episodes[name] = episode_id
    rows.write()
    client = clickhouse_connect.get_client(dsn=url)

    def contents() -> list[tuple[str, int]]:
        tables = client.query(
            "SELECT name FROM system.tables WHERE database = 'named' AND engine <> 'MaterializedView'"
            " ORDER BY name"
        )
        return [(name, client.command(f"SELECT count() FROM `{name}`")) for (name,) in tables.result_rows]

    before = contents()
    yield Named(url, episodes, contents)
    try:
        assert contents() == before  # after whatever the tests of this file tried
    finally:
        client.close()


@pytest.fixture
def folder(named: Named, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENSORZERO_CLICKHOUSE_URL", named.url)
    return tmp_path


@pytest.mark.parametrize("name", daily(CASES, 1))
def test_a_name_matches_itself_and_nothing_else(
    folder: Path, named: Named, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    options = [f"--function={name}", f"--variant={name}", f"--metric={name}", f"--tag={key_of(name)}={name}"]
    for option in options:
        assert trajkit(["export", option, "--dry-run", "--json"]) == 0, option
        assert json.loads(capsys.readouterr().out)["n_episodes_kept"] == 1, option
    assert trajkit(["export", *options, "--min=0.5", "-o", "s"]) == 0
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    (episode,) = open_dataset(folder / "s")
    assert (episode.episode_id, episode.metrics) == (named.episodes[name], {name: 0.5})
    assert episode.tags == {key_of(name): name}
    assert {(step.function_name, step.variant_name) for step in episode.steps} == {(name, name)}


@pytest.mark.parametrize(
    "name", [case for case in CASES if not set(str(case.values[0])) & set(" \t\n\r=<>!")]
)
def test_success_may_be_a_metric_of_any_name_without_blanks(folder: Path, named: Named, name: str) -> None:
    assert trajkit(["export", f"--function={name}", f"--success={name} >= 0.5", "-o", "s"]) == 0
    (episode,) = open_dataset(folder / "s")
    assert episode.outcome == "success"


@pytest.mark.parametrize("name", CASES)
def test_a_name_that_is_not_there_is_an_error_that_shows_it(
    folder: Path, named: Named, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for option in ("function", "variant", "metric"):
        assert trajkit(["export", f"--{option}=no {name}", "-o", "s"]) == 2
        printed = capsys.readouterr().err
        assert f"no {option} " in printed
        assert "Traceback" not in printed
        assert "\x1b" not in printed
    assert trajkit(["export", f"--tag=no {key_of(name)}={name}", "-o", "s"]) == 1
    assert list(folder.iterdir()) == []


def test_a_look_shows_every_name_as_it_is(
    folder: Path, named: Named, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for most in ("MOST_FUNCTIONS", "MOST_TAGS", "MOST_METRICS"):
        monkeypatch.setattr(look, most, 1_000)
    assert trajkit(["info", named.url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    functions = {one["name"]: [variant["name"] for variant in one["variants"]] for one in found["functions"]}
    metrics = {one["name"]: one["n_episodes_kept"] for one in found["metrics"] if one["n_targets"]}
    tags = {one["key"]: one["values"] for one in found["tags"]}
    for name in NAMES.values():
        assert functions[name] == [name]
        assert metrics[name] == 1
        assert tags[key_of(name)][name] == 1
    assert len(functions) == len(metrics) == len(named.episodes)
    assert trajkit(["info", named.url]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "database", daily(["named'; DROP DATABASE named; --", "a`b", 'x"y', "\\", "../x"], 2)
)
def test_a_database_of_that_name_does_not_exist(
    folder: Path, named: Named, capsys: pytest.CaptureFixture[str], database: str
) -> None:
    url = named.url.replace("/named", f"/{quote(database, safe='')}")
    for command in (["export", "--source", url], ["info", url]):
        assert trajkit(command) == 4
        assert "has no database" in capsys.readouterr().err
