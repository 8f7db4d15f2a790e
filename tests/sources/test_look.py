"""`trajkit info URL`: what a database holds, counted by the database."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.matrix import daily
from tests.sources.conftest import exported
from trajkit.cli.main import run as trajkit
from trajkit.errors import NothingMatched, ServiceError
from trajkit.sources.access import Access
from trajkit.sources.request import MetricCondition
from trajkit.sources.tensorzero.connect.database import TensorZero, open_database
from trajkit.sources.tensorzero.look import look as looking
from trajkit.sources.tensorzero.look.look import look
from trajkit.sources.tensorzero.look.models import DatabaseLook, MetricLook
from trajkit.sources.tensorzero.look.queries import PATIENCE_S

SNAPSHOT = """
[metrics.waste]
type = "float"
level = "episode"
optimize = "min"

[metrics.mistake]
type = "boolean"
level = "episode"
optimize = "min"

[metrics.never_logged]
type = "boolean"
level = "inference"
optimize = "max"
"""


def open_to_look(url: str, access: Access = Access()) -> TensorZero:  # noqa: B008
    return open_database(url, access, patience_s=PATIENCE_S)


def looked(url: str, access: Access = Access()) -> DatabaseLook:  # noqa: B008
    with contextlib.closing(open_to_look(url, access)) as database:
        return look(database)


def metric_of(found: DatabaseLook, name: str) -> MetricLook:
    (metric,) = [metric for metric in found.metrics if metric.name == name]
    return metric


class Lived(NamedTuple):
    """A database with scores of every kind, on episodes that an export brings and on others."""

    url: str
    server_url: str


@pytest.fixture(scope="module")
def lived(rows_of: Any, server: Any) -> Lived:
    rows, url = rows_of("lived")
    rows.insert("ConfigSnapshot", config=SNAPSHOT, hash=7, tensorzero_version="2026.6.0")
    for number in range(11):
        tags = {"trajkit.task": "goto" if number % 2 else "pickup", "n": str(number)}
        episode_id = rows.id()
        n_steps = 1 + number % 3
        steps = [rows.json_step(episode_id, tags=tags, variant=f"v{number % 3}") for _ in range(n_steps)]
        rows.float(episode_id, 0.99)
        rows.float(episode_id, number / 11)  # the latest counts
        rows.float(episode_id, 100.0 - number, metric="waste")
        rows.boolean(episode_id, number % 3 == 0)
        rows.boolean(episode_id, number % 4 == 0, metric="mistake")
        for place, step in enumerate(steps):
            rows.float(step, number / 10 - place, metric="step_score")
    rows.float(rows.episode(None, tags={"trajkit.purpose": "eval"}), 0.5)
    rows.float(rows.episode(None, function="tensorzero::default"), 0.5)
    rows.float(rows.episode(None), 0.9, tags={"trajkit.purpose": "eval"})
    unfinished = rows.episode(0.8)
    rows.comment(unfinished, "abandoned: killed", tags={"trajkit.abandoned": "killed"})
    rows.float(rows.id(), 0.7)  # of an episode that is not there
    rows.float(rows.episode(None), float("nan"))
    return Lived(url, server.url_for(server.user, database="lived"))


def kept_by_an_export(url: str, condition: MetricCondition) -> int:
    try:
        return int(exported(url, None, metrics=(condition,))[0].n_episodes_kept)
    except NothingMatched:
        return 0


@pytest.mark.full
@pytest.mark.parametrize("name", daily(["waste", "success", "step_score", "episode_return", "mistake"], 1))
def test_what_a_bound_keeps_is_what_an_export_with_it_brings(lived: Lived, name: str) -> None:
    metric = metric_of(looked(lived.url), name)
    assert metric.thresholds
    for threshold in metric.thresholds:
        bound = {"max" if metric.is_minimized else "min": threshold.value}
        expected = kept_by_an_export(lived.url, MetricCondition(name=name, **bound))
        assert threshold.n_episodes == expected, threshold
    if metric.kind == "float":
        assert metric.n_episodes_kept == kept_by_an_export(lived.url, MetricCondition(name=name))


def test_the_numbers_of_a_small_database(lived: Lived) -> None:
    found = looked(lived.url)
    assert (found.kind, found.schema_level, found.unknown) == ("tensorzero-clickhouse", 53, {})
    n_steps = sum(1 + number % 3 for number in range(11))
    assert n_steps == 21
    assert (found.n_episodes, found.n_inferences) == (11 + 5, n_steps + 5 * 2)
    assert found.n_feedback["float"] == 11 * 3 + n_steps + 6
    assert (found.n_feedback["boolean"], found.n_feedback["comment"]) == (22, 1)
    act, own = found.functions
    assert (act.name, act.function_type, act.n_inferences, act.n_episodes) == ("act", "json", 29, 15)
    assert (own.name, own.n_episodes) == ("tensorzero::default", 1)
    by_variant = {variant.name: variant.n_episodes for variant in act.variants}
    assert by_variant == {"v0": 4, "v1": 4, "v2": 3, "baseline": 4}
    returns = metric_of(found, "episode_return")
    assert (returns.level, returns.kind, returns.n_targets, returns.n_on_episodes) == (
        "episode",
        "float",
        11 + 6,
        11 + 5,
    )
    assert returns.n_episodes_kept == 12  # one of them with a value that is no number
    assert returns.quantiles is not None
    assert (returns.quantiles.least, returns.quantiles.most) == (0.0, pytest.approx(10 / 11, abs=1e-6))
    steps = metric_of(found, "step_score")
    assert (steps.level, steps.n_on_inferences, steps.n_episodes_kept) == ("inference", n_steps, 11)
    never = metric_of(found, "never_logged")
    assert (never.kind, never.level, never.optimize, never.n_targets) == ("boolean", "inference", "max", 0)
    task = next(tag for tag in found.tags if tag.key == "trajkit.task")
    assert (task.n_values, sum(task.values.values()), task.n_inferences) == (2, n_steps, n_steps)
    number = next(tag for tag in found.tags if tag.key == "n")
    assert (number.n_values, len(number.values)) == (11, 3)
    assert found.first_at is not None
    assert found.last_at is not None
    assert found.first_at < found.last_at


def test_a_metric_on_episodes_and_on_steps_has_no_level_and_no_bounds(rows: Any, url: str) -> None:
    episode_id = rows.episode(0.5)
    rows.float(rows.json_step(episode_id), 0.5)
    metric = metric_of(looked(url), "episode_return")
    assert (metric.level, metric.n_on_episodes, metric.n_on_inferences) == (None, 1, 1)
    assert (metric.n_episodes_kept, metric.thresholds) == (None, ())


def test_a_database_without_rows(url: str) -> None:
    found = looked(url)
    assert (found.n_inferences, found.n_episodes, found.first_at, found.functions) == (0, 0, None, ())
    assert (found.n_functions, found.n_tags, found.tags) == (0, 0, ())
    assert found.unknown == {}


def test_chat_functions_are_counted_too(rows: Any, url: str) -> None:
    episode_id = rows.id()
    user = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    rows.chat_step(episode_id, output=[{"type": "text", "text": "hi"}], prompt=user, tags={"a": "b"})
    found = looked(url)
    assert [(one.name, one.function_type) for one in found.functions] == [("talk", "chat")]
    assert [(tag.key, tag.values) for tag in found.tags] == [("a", {"b": 1})]


def test_what_is_listed_is_bounded_and_the_rest_is_counted(
    rows: Any, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(5):
        episode_id = rows.episode(None, function=f"f{number}", tags={f"k{number}": "v"})
        rows.float(episode_id, 1.0, metric=f"m{number}")
    for name in ("MOST_FUNCTIONS", "MOST_TAGS", "MOST_METRICS"):
        monkeypatch.setattr(looking, name, 2)
    found = looked(url)
    assert [one.name for one in found.functions] == ["f0", "f1"]
    assert [one.key for one in found.tags] == ["k0", "k1"]
    assert [one.name for one in found.metrics] == ["m0", "m1"]
    assert (found.n_functions, found.n_tags, found.n_metrics) == (5, 5, 5)
    assert trajkit(["info", url]) == 0
    printed = capsys.readouterr().out
    for noun in ("functions", "tags", "metrics"):
        assert f"… and 3 {noun} more" in printed


def test_what_is_too_much_for_the_server_is_named_and_the_rest_is_shown(
    lived: Lived, capsys: pytest.CaptureFixture[str]
) -> None:
    limited = f"{lived.server_url}?max_rows_to_group_by=1&group_by_overflow_mode=throw"
    found = looked(limited)
    assert found.n_episodes == 16
    assert found.functions == ()
    assert found.n_functions is None
    assert {"functions", "tags"} <= found.unknown.keys()
    assert trajkit(["info", limited]) == 0
    printed = capsys.readouterr()
    assert "16 episodes" in printed.out
    assert "not known: functions: ClickHouse at" in printed.err
    assert "limit of rows" in printed.err


def test_a_look_has_only_so_much_time_where_the_user_may_say_so(server: Any, url: str) -> None:
    def limit_of(database: TensorZero) -> str:
        sql = "SELECT value FROM system.settings WHERE name = 'max_execution_time'"
        with contextlib.closing(database):
            return str(database.dialect.connection.query(sql)[0][0])

    assert limit_of(open_to_look(server.url)) == str(PATIENCE_S)
    assert limit_of(open_to_look(server.url, Access(max_seconds=5))) == "5"
    assert limit_of(open_to_look(url)) == "0"  # may read and change nothing
    with pytest.raises(ServiceError, match="--timeout cannot be set"):
        open_to_look(url, Access(max_seconds=5))


# -- as it is typed ------------------------------------------------------------------------------------------


def test_the_command_prints_tables(lived: Lived, capsys: pytest.CaptureFixture[str]) -> None:
    assert trajkit(["info", lived.url]) == 0
    printed = capsys.readouterr()
    lines = [" ".join(line.split()) for line in printed.out.splitlines()]
    assert lines[0].endswith(": TensorZero, ClickHouse, schema level 53")
    assert any(line.startswith("31 inferences 16 episodes") for line in lines)
    assert any(line.startswith("act json 29 15 ") for line in lines)
    assert any(line.startswith("waste float episode min 11 90 ") for line in lines)
    assert any(line.startswith("never_logged boolean inference max 0 -") for line in lines)
    assert "waste 11" in lines
    assert any(line.startswith("--max ") for line in lines)
    assert any(line.startswith("trajkit.task 21 2 ") for line in lines)
    assert printed.err == ""


def test_json_is_the_whole_look(lived: Lived, capsys: pytest.CaptureFixture[str]) -> None:
    assert trajkit(["info", lived.url, "--json"]) == 0
    assert DatabaseLook.model_validate(json.loads(capsys.readouterr().out)) == looked(lived.url)


def test_database_looks_where_an_export_reads(
    lived: Lived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENSORZERO_CLICKHOUSE_URL", lived.url)
    assert trajkit(["info", "--database"]) == 0
    assert "16 episodes" in capsys.readouterr().out
    assert trajkit(["info", "--database", "sample:babyai"]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("http://u:secret@127.0.0.1:1/tensorzero", 4, "cannot be reached"),
        ("ftp://u:secret@127.0.0.1/x", 2, "an address holds no user, password or query"),
        ("http://u:secret@127.0.0.1:99999/x", 2, "a port that is not a number up to 65535"),
        ("sample:babyai --max-threads 2", 2, "--max-threads is for databases"),
        ("sample:babyai --timeout 2", 2, "--timeout is for databases"),
        ("http://127.0.0.1:1 --max-server-memory 3", 2, "less than 10MB"),
        ("http://127.0.0.1:1 --max-server-memory much", 2, "'much' is not a size"),
        ("http://127.0.0.1:1 --max-threads 0", 2, "0 is not in the range x>=1"),
        ("http://127.0.0.1:1 --ca-cert nowhere.pem", 2, "'nowhere.pem' does not exist"),
    ],
)
def test_bad_requests_say_what_is_wrong(
    arguments: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trajkit(["info", *arguments.split()]) == code
    printed = capsys.readouterr()
    assert message in printed.err
    assert "secret" not in printed.err
    assert printed.out == ""


def test_a_database_that_is_not_tensorzeros(
    url: str, client: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    client.command("CREATE DATABASE IF NOT EXISTS bare")
    assert trajkit(["info", url.replace("/tensorzero", "/bare")]) == 4
    assert "is not a TensorZero database" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("2GB", 2 * 10**9), ("500 MB", 5 * 10**8), ("1.5g", 15 * 10**8), ("20000000", 2 * 10**7)],
)
def test_sizes_are_powers_of_a_thousand(text: str, n_bytes: int) -> None:
    from trajkit.commands.play.server import n_bytes_of

    assert n_bytes_of(text) == n_bytes


# -- three places, one meaning -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def places(
    shared_clickhouse: str, shared_postgres: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """One set of rows, of every shape, in both databases and in an archive."""
    archive = tmp_path_factory.mktemp("looked") / "archive"
    assert trajkit(["archive", "--source", shared_clickhouse, "-o", str(archive)]) == 0
    return {"clickhouse": shared_clickhouse, "postgres": shared_postgres, "archive": str(archive)}


@pytest.mark.parametrize("place", daily(["postgres", "archive"], 1))
def test_every_place_says_the_same(
    places: dict[str, str], place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(source: str) -> dict[str, Any]:
        assert trajkit(["info", source, "--json"]) == 0
        printed: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert printed["unknown"] == {}
        return {name: value for name, value in printed.items() if name not in PLACE_ALONE}

    expected = said(places["clickhouse"])
    assert expected["n_episodes"] > 100
    assert len(expected["metrics"]) == 5
    assert said(places[place]) == expected
    assert trajkit(["info", places[place]]) == 0
    assert "TensorZero, " in capsys.readouterr().out


PLACE_ALONE = ("kind", "url", "schema_level", "n_text_bytes")


@pytest.mark.full
def test_a_look_at_postgres_has_only_so_much_time(
    places: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from trajkit.sources.tensorzero.look import queries as look_queries

    monkeypatch.setattr(looking, "tags_query", lambda tables, most: "SELECT pg_sleep(30)")
    assert look_queries.tags_query is not looking.tags_query
    assert trajkit(["info", places["postgres"], "--timeout", "1"]) == 0
    assert "not known: tags: Postgres at" in capsys.readouterr().err


def test_an_archive_takes_no_options_of_servers(
    places: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert trajkit(["info", places["archive"], "--max-threads", "2"]) == 2
    assert "--max-threads is for databases" in capsys.readouterr().err
