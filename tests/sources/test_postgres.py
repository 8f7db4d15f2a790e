"""The same episodes from Postgres as from ClickHouse: from real servers, filled with one generated set."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.matrix import daily
from tests.sources import generated
from tests.sources.conftest import exported
from trajkit.errors import NothingMatched, QueryError, ServiceError
from trajkit.sources.access import Access, LimitReached
from trajkit.sources.request import ExportRequest, MetricCondition
from trajkit.sources.tensorzero.connect.database import TensorZero, connect, open_database
from trajkit.sources.tensorzero.connect.postgres.connection import Connection
from trajkit.sources.tensorzero.connect.url import parse_url
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import open_store, verify

EVERYTHING = {"include_eval": True, "include_abandoned": True}


REQUESTS: dict[str, dict[str, Any]] = {
    "everything": EVERYTHING,
    "what trains": {},
    "a bound": {"metrics": (MetricCondition(name="episode_return", min=0.7),)},
    "a bound below": {"metrics": (MetricCondition(name="progression", max=0.9),), **EVERYTHING},
    "yes": {"metrics": (MetricCondition(name="success"),)},
    "steps": {"metrics": (MetricCondition(name="step_score", min=0.5), MetricCondition(name="step_ok"))},
    "a function": {"functions": ("talk",), "include_invalid": True},
    "a variant": {"variants": ('it\'s "odd"; DROP TABLE x; -- \\ é',)},
    "tags": {"tags": {"trajkit.env": "babyai", "trajkit.task": "goto"}},
    "a time": {
        "since": datetime(2026, 2, 26, tzinfo=UTC),
        "until": datetime(2026, 3, 1, 12, tzinfo=UTC),
        **EVERYTHING,
    },
    "a moment": {"as_of": datetime(2026, 2, 28, tzinfo=UTC), **EVERYTHING},
    "words": {"where": "n_steps > 2 and (metrics.episode_return >= 0.5 or tags.user = 'u')", **EVERYTHING},
    "tokens": {"where": "step.n_input_tokens > 100", **EVERYTHING},
}


@pytest.mark.parametrize("asked", daily(REQUESTS, {"everything"}))
def test_the_digest_is_that_of_the_same_export_from_clickhouse(
    asked: str, shared_postgres: str, shared_clickhouse: str, tmp_path: Path
) -> None:
    options = {"as_of": datetime(2027, 1, 1, tzinfo=UTC), **REQUESTS[asked]}
    expected, of_clickhouse = exported(shared_clickhouse, tmp_path / "clickhouse", **options)
    found, of_postgres = exported(shared_postgres, tmp_path / "postgres", **options)
    assert found == expected
    assert of_postgres.digest == of_clickhouse.digest
    assert of_postgres.counts == of_clickhouse.counts
    assert of_postgres.metrics == of_clickhouse.metrics
    verify(open_store(tmp_path / "postgres"), deep=True)


@pytest.mark.full
def test_the_generated_set_has_every_shape(shared_clickhouse: str, tmp_path: Path) -> None:
    """What the test above compares: tools, thoughts, files, feedback of four kinds, conversations."""
    tally, manifest = exported(shared_clickhouse, tmp_path / "store", **EVERYTHING)
    assert {metric.name for metric in manifest.metrics} >= {
        "episode_return",
        "success",
        "step_score",
        "step_ok",
    }
    reasons = {entry.reason for entry in tally.masked}
    assert {"invalid output", "prompt ambiguous", "prompt unknown"} <= reasons
    episodes = list(open_dataset(tmp_path / "store"))
    steps = [step for episode in episodes for step in episode.steps]
    blocks = {block.type for step in steps for message in step.messages or () for block in message.content}
    blocks |= {block.type for step in steps if step.completion for block in step.completion.content}
    assert blocks == {"text", "thought", "tool_call", "tool_result", "file", "unknown"}
    assert {entry.kind for episode in episodes for entry in episode.feedback} == {
        "float",
        "boolean",
        "comment",
        "demonstration",
    }
    assert any(step.n_prompt_kept for step in steps)
    assert {len(step.tools) for step in steps if step.tools} == {2, 3}


@pytest.mark.full
def test_what_an_export_keeps_when_payloads_have_expired(
    postgres_of: Callable[[str, Any], str], postgres_server: Any, shared_data: Any, tmp_path: Path
) -> None:
    """Metadata stay, input and output are gone: such steps are counted and not learned, and none is lost."""
    url = postgres_of("expired", shared_data)
    before, _ = exported(url, tmp_path / "before", **EVERYTHING)
    for table in ("json_inference_data", "chat_inference_data", "model_inference_data"):
        # as a dropped partition does it
        postgres_server.run(f"DELETE FROM tensorzero.{table} WHERE created_at < '2026-02-26'", "expired")
    after, _ = exported(url, tmp_path / "after", **EVERYTHING)
    assert (after.n_episodes_kept, after.n_steps_kept) == (before.n_episodes_kept, before.n_steps_kept)
    masked = {entry.reason: entry.n_steps for entry in after.masked}
    first_day = [
        row
        for row in shared_data.inferences
        if row["created_ms"] < datetime(2026, 2, 26, tzinfo=UTC).timestamp() * 1000
        and not row["function_name"].startswith("tensorzero::")
    ]
    assert masked["payload expired"] == len(first_day) > 20
    gone = {row["id"] for row in first_day}
    for episode in open_dataset(tmp_path / "after"):
        for step in episode.steps:
            if step.inference_id in gone:
                assert (step.completion, step.input, step.loss_weight) == (None, None, 0)
                assert step.messages is None
            elif step.mask_reason is None:
                assert step.completion is not None


@pytest.mark.full
def test_the_exact_double_stays_beside_the_single_precision(
    shared_postgres: str, shared_data: Any, tmp_path: Path
) -> None:
    exported(shared_postgres, tmp_path / "store", **EVERYTHING)
    latest: dict[tuple[str, str], tuple[str, float]] = {}
    for row in shared_data.feedback:
        if row["kind"] == "float":
            key = row["target_id"], row["metric_name"]
            latest[key] = max(latest.get(key, ("", 0.0)), (row["id"], row["value"]))
    seen = 0
    for episode in open_dataset(tmp_path / "store"):
        exact = (episode.origin or {}).get("exact_metrics", {})
        for name, value in exact.items():
            assert value == latest[episode.episode_id, name][1]
            assert value != episode.metrics[name]
            seen += 1
        for step in episode.steps:
            for name, value in ((step.extra or {}).get("exact_metrics", {})).items():
                assert value == latest[str(step.inference_id), name][1]
                seen += 1
    inexact = {0.1 + 0.2, 1 / 3, 0.699999988, 16_777_217.0}
    kept = {
        target
        for row in shared_data.inferences
        for target in (row["episode_id"], row["id"])
        if not row["function_name"].startswith("tensorzero::")
    }
    expected = sum(value in inexact for (target, _), (_, value) in latest.items() if target in kept)
    assert seen == expected > 50


def test_a_float_is_what_clickhouse_makes_of_it(postgres_server: Any, client: Any, url: str) -> None:
    """Every boundary of single precision, as a text and as a number."""
    from trajkit.sources.tensorzero.connect.postgres.dialect import NUMBER, NUMBER_TEXT

    values = [
        *(0.0, -0.0, 0.7, 0.1 + 0.2, 1 / 3, 1e-7, 1.5e-10, 123456.7, 1e6, 1234567.0, 16777217.0, 123456789.0),
        *(1e10, 1.5e15, 1e20, 9.99999e20, 1e21, 1.234e30, 3.4028235e38, 3.4028235677973e38, 3.5e38, 1e300),
        *(1.4e-45, 7.1e-46, 7.0e-46, 1e-50, 1.1754944e-38, 2.5e-39, 100.0, 99999.99, 0.001, 0.0001, 1e-5),
        *(float("inf"), float("nan")),
    ]
    values += [-value for value in values]
    rows = " UNION ALL ".join(
        f"SELECT {n} AS n, '{value!r}'::float8 AS value" for n, value in enumerate(values)
    )
    found = postgres_server.run(f"SELECT {NUMBER_TEXT}, {NUMBER} FROM ({rows}) v ORDER BY n").splitlines()
    for value, line in zip(values, found, strict=True):
        ((expected,),) = client.query(
            "SELECT toString(toFloat32({value:Float64}))", parameters={"value": value}
        ).result_rows
        text, number = line.split("|")
        assert text == expected.replace("-nan", "nan"), value
        if "n" not in text:
            assert float(number) == float(expected), value


def test_slots_are_the_same_everywhere(postgres_server: Any, client: Any, url: str) -> None:
    import random
    import uuid

    import duckdb

    from trajkit.sources.tensorzero.connect import slot

    source = random.Random(7)
    ids = [str(uuid.UUID(int=source.getrandbits(128))) for _ in range(500)]
    ids += [str(uuid.UUID(int=number)) for number in (0, 1, 2**32 - 1, 2**64 - 1, 2**127, 2**128 - 1)]
    expected = [slot.slot_of(each) for each in ids]
    listed = ", ".join(f"'{each}'" for each in ids)
    in_order = f"unnest(ARRAY[{listed}]::uuid[]) WITH ORDINALITY AS x(id, n) ORDER BY n"
    found = postgres_server.run(f"SELECT {slot.in_postgres('id')} FROM {in_order}")
    assert [int(line) for line in found.splitlines()] == expected
    rows = client.query(
        f"SELECT {slot.in_clickhouse('id')} FROM (SELECT toUUID(arrayJoin([{listed}])) AS id)"
    ).result_rows
    assert [row[0] for row in rows] == expected
    with duckdb.connect() as connection:
        made = connection.execute(
            f"SELECT {slot.in_duckdb('id')} FROM (SELECT unnest([{listed}]::UUID[]) AS id)"
        ).fetchall()
    assert [row[0] for row in made] == expected
    assert len(set(expected)) > 490


# -- safety --------------------------------------------------------------------------------------------------


def test_nothing_is_written_and_every_transaction_is_read_only(
    shared_postgres: str, postgres_server: Any, tmp_path: Path
) -> None:
    start = len(postgres_server.log())
    exported(shared_postgres, tmp_path / "store", metrics=(MetricCondition(name="episode_return", min=0.5),))
    said = re.findall(r"LOG:  (?:statement|execute [^:]*): +(\w+)(.*)", postgres_server.log()[start:])
    assert {command.upper() for command, _ in said} == {"BEGIN", "SELECT", "COPY", "ROLLBACK"}
    assert {rest.strip() for command, rest in said if command.upper() == "BEGIN"} == {"READ ONLY"}


def test_a_write_is_refused_whoever_the_user_is(postgres_server: Any, shared_postgres: str) -> None:
    owner = parse_url(postgres_server.url("shared", is_owner=True))
    with contextlib.closing(Connection(owner)) as connection:
        with pytest.raises(ServiceError, match="read-only transaction"):
            connection.query(
                "WITH gone AS (DELETE FROM tensorzero.comment_feedback RETURNING id) SELECT * FROM gone"
            )
        assert connection.query("SELECT 1") == [(1,)]


NAMES = ["'; DROP TABLE tensorzero.chat_inferences; --", "\\'; --", "$1", "é漢字", "%s", "{x}"]
NAMES += ["'", '"', "\\", ";"]


@pytest.fixture(scope="module")
def named(postgres_of: Callable[[str, Any], str]) -> tuple[str, dict[str, str]]:
    """A database where each of `NAMES` is function, variant, tag and metric of one episode, and those."""
    data = generated.generated(seed=2, n_episodes=2 * len(NAMES))
    episode_of = dict(zip(NAMES, data.episode_ids, strict=False))
    for name, episode_id in episode_of.items():
        first = next(row for row in data.inferences if row["episode_id"] == episode_id)
        first |= {"function_name": name, "variant_name": name, "tags": {name: name}}
        score = {"kind": "float", "id": first["id"], "target_id": episode_id, "tags": {}, "created_ms": 1}
        score |= {"snapshot_hash": first["snapshot_hash"], "metric_name": name, "value": 0.5}
        data.feedback.append(score)
    return postgres_of("names", data), episode_of


@pytest.mark.full
@pytest.mark.parametrize("name", daily(NAMES, {"'; DROP TABLE tensorzero.chat_inferences; --"}))
def test_names_only_match_themselves(
    name: str, named: tuple[str, dict[str, str]], postgres_server: Any, tmp_path: Path
) -> None:
    url, episode_of = named
    asked: list[dict[str, Any]] = [
        {"functions": (name,)},
        {"variants": (name,)},
        {"tags": {name: name}},
        {"metrics": (MetricCondition(name=name, min=0.5),)},
    ]
    for options in asked:
        tally, _ = exported(url, None, **EVERYTHING, **options)
        assert tally.n_episodes_kept == 1
    for options in ({"functions": (f"{name}x",)}, {"metrics": (MetricCondition(name=f"{name}x"),)}):
        with pytest.raises(QueryError, match=r"no (function|metric)"):
            exported(url, None, **options)
    with pytest.raises(NothingMatched):
        exported(url, None, tags={name: f"{name}x"}, **EVERYTHING)
    exported(url, tmp_path / "store", functions=(name,), tags={name: name}, **EVERYTHING)
    assert [each.episode_id for each in open_dataset(tmp_path / "store")] == [episode_of[name]]
    assert int(postgres_server.run("SELECT count(*) FROM tensorzero.chat_inferences", "names")) > 0


@pytest.mark.full
def test_a_server_that_ends_in_the_middle_leaves_nothing_that_looks_finished(
    postgres_of: Callable[[str, Any], str], postgres_server: Any, tmp_path: Path
) -> None:
    url = postgres_of("killed", generated.generated(seed=3, n_episodes=100))
    _, undisturbed = exported(url, tmp_path / "undisturbed", **EVERYTHING)

    class Killing(TensorZero):
        def inferences(self, *asked: Any) -> Iterator[pa.RecordBatch]:
            postgres_server.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'"
            )
            return super().inferences(*asked)

    with pytest.raises(ServiceError, match=r"postgresql://127\.0\.0\.1"):
        exported(Killing(connect(url)), tmp_path / "killed", **EVERYTHING)
    assert not (tmp_path / "killed").exists()
    _, again = exported(url, tmp_path / "killed", **EVERYTHING)
    assert again.digest == undisturbed.digest


def test_a_stream_that_is_broken_off_gives_its_connection_up(shared_postgres: str, shared_data: Any) -> None:
    database = open_database(shared_postgres)
    stream = database.model_inferences(None, 1, ExportRequest())
    next(stream)
    stream.close()
    assert database.scope(ExportRequest()).n_episodes == len(shared_data.episode_ids)
    database.close()


@pytest.mark.full
def test_what_a_query_may_take_is_told_to_the_server(shared_postgres: str, tmp_path: Path) -> None:
    access = Access(max_threads=1, max_memory_bytes=80_000_000, max_seconds=1)
    with contextlib.closing(Connection(parse_url(shared_postgres), access)) as connection:
        names = ("max_parallel_workers_per_gather", "work_mem", "statement_timeout", "transaction_read_only")
        selected = ", ".join(f"current_setting('{name}')" for name in names)
        assert connection.query(f"SELECT {selected}") == [("0", "9765kB", "1s", "on")]
        with pytest.raises(LimitReached, match="statement timeout"):
            connection.query("SELECT pg_sleep(5)::text")
    exported(shared_postgres, tmp_path / "store", access)


# -- what goes wrong -----------------------------------------------------------------------------------------


def test_a_wrong_password_is_said_and_not_shown(postgres_server: Any) -> None:
    url = f"postgresql://reader:hunter2secret@127.0.0.1:{postgres_server.port}/postgres"
    with pytest.raises(ServiceError, match="refused user 'reader'") as caught:
        open_database(url)
    error: BaseException | None = caught.value
    while error is not None:
        assert "hunter2secret" not in f"{error!s}{error!r}"
        error = error.__cause__


def test_a_database_that_is_not_there_is_named(postgres_server: Any) -> None:
    with pytest.raises(ServiceError, match="has no database 'nowhere'"):
        open_database(postgres_server.url("nowhere"))


def test_a_server_that_is_not_there_is_said() -> None:
    with pytest.raises(ServiceError, match="cannot be reached"):
        open_database("postgresql://reader:x@127.0.0.1:9/tensorzero")


def test_a_database_of_something_else_lists_what_is_missing(postgres_server: Any) -> None:
    url = postgres_server.make_database("else", tables="CREATE SCHEMA tensorzero")
    with (
        contextlib.closing(open_database(url)) as database,
        pytest.raises(ServiceError, match=r"missing tensorzero\.json_inferences") as caught,
    ):
        database.check(ExportRequest())
    assert all(table in caught.value.message for table in database.dialect.required)


def test_tables_that_may_not_be_read_are_missing_and_the_hint_says_what_to_grant(
    postgres_server: Any, postgres_of: Callable[[str, Any], str]
) -> None:
    url = postgres_of("revoked", generated.generated(seed=4, n_episodes=2))
    postgres_server.run("REVOKE SELECT ON tensorzero.comment_feedback FROM reader", "revoked")
    with pytest.raises(ServiceError, match=r"missing tensorzero\.comment_feedback ") as caught:
        exported(url, None)
    assert caught.value.hint is not None
    assert "SELECT" in caught.value.hint
