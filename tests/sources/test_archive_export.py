"""An archive in the place of its database: the same episodes, with the same digest, from either database."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import pytest

from tests.matrix import daily
from tests.sources import conftest, test_postgres
from tests.sources.test_old_schema import made_at
from tests.sources.test_postgres import EVERYTHING
from trajkit._core.settings import Project
from trajkit.cli.main import run as run_command
from trajkit.curation.merge import merge
from trajkit.errors import DataError
from trajkit.schema import Manifest
from trajkit.sources.choose import UNCHANGED
from trajkit.sources.open import export_from, find_source
from trajkit.sources.request import ExportRequest, MetricCondition, Shard, Tally
from trajkit.sources.tensorzero.archive.copying import archive
from trajkit.sources.tensorzero.archive.dialect import open_archive
from trajkit.sources.tensorzero.archive.origin import ClickHouseOrigin, PostgresOrigin
from trajkit.sources.tensorzero.archive.verify import verify
from trajkit.sources.tensorzero.connect.database import open_database
from trajkit.sources.tensorzero.export.after import earlier
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import open_store
from trajkit.store.reader import verify as verify_store

LATER = datetime(2027, 1, 1, tzinfo=UTC)

REQUESTS: dict[str, dict[str, Any]] = {
    **{name: asked for name, asked in test_postgres.REQUESTS.items() if name not in ("everything", "yes")},
    "demonstrations": {"targets": "demonstration", **EVERYTHING},
    "a shard": {"shard": Shard(number=2, n=3), **EVERYTHING},
}


@pytest.fixture(scope="module")
def urls(shared_clickhouse: str, shared_postgres: str) -> dict[str, str]:
    return {"clickhouse": shared_clickhouse, "postgres": shared_postgres}


@pytest.fixture(scope="module")
def archives(urls: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for name, opened in (("clickhouse", ClickHouseOrigin), ("postgres", PostgresOrigin)):
        made[name] = tmp_path_factory.mktemp("archives") / name
        with contextlib.closing(opened(urls[name])) as origin:
            archive(origin, made[name])
    return made


@pytest.fixture(scope="module")
def sources(urls: dict[str, str], archives: dict[str, Path]) -> dict[str, Callable[[], Any]]:
    """What opens each database, and the archive of each."""
    return {
        "clickhouse": lambda: open_database(urls["clickhouse"]),
        "postgres": lambda: open_database(urls["postgres"]),
        "archive of clickhouse": lambda: open_archive(archives["clickhouse"]),
        "archive of postgres": lambda: open_archive(archives["postgres"]),
    }


class Whole(NamedTuple):
    """An export of everything."""

    tally: Tally
    manifest: Manifest
    folder: Path


@pytest.fixture(scope="module")
def whole(
    sources: dict[str, Callable[[], Any]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Whole]:
    """Everything of each source."""
    folder = tmp_path_factory.mktemp("whole")
    return {
        name: Whole(*exported(opened(), folder / name, **EVERYTHING), folder / name)
        for name, opened in sources.items()
    }


def exported(source: Any, goal: Path, **options: Any) -> tuple[Tally, Manifest]:
    tally, manifest = conftest.exported(source, goal, **{"as_of": LATER, **options})
    return tally, manifest


@pytest.mark.parametrize(
    ("kind", "asked"),
    daily(itertools.product(("clickhouse", "postgres"), REQUESTS), {("postgres", "demonstrations")}),
)
def test_an_export_from_an_archive_is_that_from_its_database(
    kind: str, asked: str, urls: dict[str, str], archives: dict[str, Path], tmp_path: Path
) -> None:
    options = REQUESTS[asked]
    tally, of_database = exported(urls[kind], tmp_path / "database", **options)
    found, of_archive = exported(open_archive(archives[kind]), tmp_path / "archive", **options)
    assert found == tally
    assert of_archive.counts == of_database.counts
    assert of_archive.metrics == of_database.metrics
    assert of_archive.digest == of_database.digest
    verify_store(open_store(tmp_path / "archive"), deep=True)


@pytest.mark.full
def test_an_archive_at_an_address_is_read_as_one_in_a_folder(
    archives: dict[str, Path], whole: dict[str, Whole], tmp_path: Path
) -> None:
    folder = archives["clickhouse"]
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/archives/clickhouse", recursive=True)
    try:
        there = find_source("memory://archives/clickhouse", Project())
        request = ExportRequest(**{"as_of": LATER, **EVERYTHING})
        tally, manifest = export_from(there, request, tmp_path / "store", on_progress=lambda *_: None)
    finally:
        memory.rm("/archives", recursive=True)
    expected = whole["archive of clickhouse"]
    assert manifest is not None
    assert (tally, manifest.digest) == (expected.tally, expected.manifest.digest)
    assert manifest.source == expected.manifest.source


@pytest.mark.full
def test_every_source_gives_the_same_episodes_and_keeps_the_same_inputs(whole: dict[str, Whole]) -> None:
    """Inputs are kept where they say something that the prompt does not."""
    for kind in ("clickhouse", "postgres"):
        of_database, of_archive = whole[kind], whole[f"archive of {kind}"]
        assert of_archive.tally == of_database.tally
        assert of_archive.manifest.counts == of_database.manifest.counts
        assert of_archive.manifest.metrics == of_database.manifest.metrics
        assert of_archive.manifest.digest == of_database.manifest.digest
        verify_store(open_store(of_archive.folder), deep=True)
    assert whole["archive of clickhouse"].manifest.digest == whole["archive of postgres"].manifest.digest
    inputs = [
        {step.inference_id: step.input for episode in open_dataset(each.folder) for step in episode.steps}
        for each in whole.values()
    ]
    assert inputs[0] == inputs[1] == inputs[2] == inputs[3]
    said = [value is None for value in inputs[0].values()]
    assert 0 < sum(said) < len(said)


@pytest.mark.full
@pytest.mark.parametrize(
    "place", daily(("clickhouse", "postgres", "archive of clickhouse", "archive of postgres"), {"postgres"})
)
def test_what_came_after_a_moment_completes_what_was_there(
    place: str, sources: dict[str, Callable[[], Any]], whole: dict[str, Whole], tmp_path: Path
) -> None:
    opened = sources[place]
    moment = datetime(2026, 2, 28, tzinfo=UTC)
    exported(opened(), tmp_path / "before", as_of=moment, **EVERYTHING)
    options = {"after": earlier(str(tmp_path / "before")), **EVERYTHING}
    tally, _ = exported(opened(), tmp_path / "after", **options)
    assert tally.since is not None
    assert min(tally.since.n_episodes_new, tally.since.n_episodes_again) > 3
    assert {each.reason: each.n_episodes for each in tally.left}[UNCHANGED] > 3
    merged = merge([tmp_path / "before", tmp_path / "after"], tmp_path / "merged", prefer="last").manifest
    assert merged is not None
    assert merged.digest == whole[place].manifest.digest


@pytest.mark.full
@pytest.mark.parametrize("kind", ["clickhouse", "postgres"])
def test_the_sums_of_an_archive_are_those_of_its_database(
    kind: str, urls: dict[str, str], archives: dict[str, Path]
) -> None:
    opened = ClickHouseOrigin if kind == "clickhouse" else PostgresOrigin
    with contextlib.closing(opened(urls[kind])) as origin:
        found = verify(origin, archives[kind])
    assert found.is_complete
    assert {day.table for day in found.days} >= {
        "chat_inference",
        "json_inference",
        "model_inference",
        "float_feedback",
        "boolean_feedback",
        "comment_feedback",
        "demonstration_feedback",
        "config_snapshot",
        "evaluation_episode",
    }
    assert all(day.n_there == day.n_here > 0 for day in found.days)
    assert sum(day.n_gone + day.n_newer for day in found.days) == 0


@pytest.mark.parametrize("kind", ["clickhouse", "postgres"])
def test_the_second_run_over_a_large_archive_brings_nothing(
    kind: str, urls: dict[str, str], archives: dict[str, Path]
) -> None:
    opened = ClickHouseOrigin if kind == "clickhouse" else PostgresOrigin
    with contextlib.closing(opened(urls[kind])) as origin:
        assert set(archive(origin, archives[kind]).n_new.values()) == {0}


@pytest.mark.full
def test_the_streams_of_an_archive_have_the_rows_of_its_database(
    urls: dict[str, str], archives: dict[str, Path]
) -> None:
    """Also what no digest covers: inputs, tools, costs, snapshots, tasks, requests."""
    request = ExportRequest(as_of=LATER, metrics=(MetricCondition(name="success"),))

    def rows(database: Any) -> dict[str, list[str]]:
        calls = database.model_inferences(None, 7, request)
        call_ids = sorted(str(row["model_inference_id"]) for batch in calls for row in batch.to_pylist())[:5]
        with contextlib.closing(database):
            return {
                name: sorted(
                    json.dumps(row, default=str, sort_keys=True)
                    for batch in batches
                    for row in batch.to_pylist()
                )
                for name, batches in (
                    ("index", database.index(request)),
                    ("tag_values", database.tag_values(request, ["trajkit.env", "user"])),
                    ("measured", database.measured(request)),
                    ("eval_targets", database.eval_targets(request)),
                    ("abandoned", database.abandoned(request)),
                    ("demonstrated", database.demonstrated(request)),
                    ("inferences", database.inferences(None, 7, request)),
                    ("model_inferences", database.model_inferences(None, 7, request)),
                    ("raw_requests", database.raw_requests(call_ids)),
                    ("feedback", database.feedback(None, request)),
                    ("new_feedback", database.new_feedback(datetime(2026, 3, 1, tzinfo=UTC), request)),
                    ("snapshots", database.snapshots()),
                    ("tasks", database.tasks()),
                )
            }

    expected, found = rows(open_database(urls["clickhouse"])), rows(open_archive(archives["clickhouse"]))
    for name in expected:
        assert expected[name], name
        assert _comparable(name, found[name]) == _comparable(name, expected[name]), name


def _comparable(name: str, rows: list[str]) -> list[Any]:
    """JSON has several spellings of a text, and ClickHouse has its own of a comment and of tags."""
    values = [json.loads(row) for row in rows]
    for row in values:
        if name in ("feedback", "inferences"):
            column = "value" if name == "feedback" else "tags"
            row[column] = json.loads(row[column])
    return values


@pytest.mark.full
@pytest.mark.parametrize("level", [0, 5, 24, 43])
def test_an_old_database_is_archived_with_what_it_has(level: int, server: Any, tmp_path: Path) -> None:
    url = made_at(level, server)
    with contextlib.closing(ClickHouseOrigin(url)) as origin:
        archive(origin, tmp_path / "folder")
        assert verify(origin, tmp_path / "folder").is_complete
    tally, of_database = exported(url, tmp_path / "database")
    found, of_archive = exported(open_archive(tmp_path / "folder"), tmp_path / "archive")
    assert found == tally
    assert of_archive.digest == of_database.digest


@pytest.mark.full
def test_payloads_that_expire_after_an_archive_stay_in_it(
    postgres_of: Callable[[str, Any], str], postgres_server: Any, shared_data: Any, tmp_path: Path
) -> None:
    url = postgres_of("archived_then_expired", shared_data)
    with contextlib.closing(PostgresOrigin(url)) as origin:
        archive(origin, tmp_path / "early")
        _, before = exported(url, tmp_path / "before", **EVERYTHING)
        for table in ("json_inference_data", "chat_inference_data", "model_inference_data"):
            postgres_server.run(
                f"DELETE FROM tensorzero.{table} WHERE created_at < '2026-02-26'", "archived_then_expired"
            )
        found = verify(origin, tmp_path / "early")
        assert found.is_complete
        assert sum(day.n_gone for day in found.days) > 20
        assert set(archive(origin, tmp_path / "early").n_new.values()) == {0}
        archive(origin, tmp_path / "late")
        assert verify(origin, tmp_path / "late").is_complete
    _, kept = exported(open_archive(tmp_path / "early"), tmp_path / "from_early", **EVERYTHING)
    assert kept.digest == before.digest
    tally, after = exported(url, tmp_path / "after", **EVERYTHING)
    assert after.digest != before.digest
    found_tally, late = exported(open_archive(tmp_path / "late"), tmp_path / "from_late", **EVERYTHING)
    assert (found_tally, late.digest) == (tally, after.digest)
    assert {each.reason for each in tally.masked} >= {"payload expired"}


@pytest.mark.full
def test_texts_that_are_not_utf8_are_noticed_in_an_archive_too(
    rows: Any, url: str, client: Any, tmp_path: Path
) -> None:
    good, bad = rows.episode(0.5), rows.episode(0.5)
    settings = "SETTINGS mutations_sync = 1"
    client.command(
        "ALTER TABLE JsonInference UPDATE input = replaceOne(input, 'a wall', unhex('fffe41')),"
        f" tags = map('k', unhex('fe')) WHERE episode_id = '{bad}' {settings}"
    )
    client.command(
        "ALTER TABLE FloatMetricFeedback UPDATE tags = map('k', unhex('fe'))"
        f" WHERE target_id = '{bad}' {settings}"
    )
    client.command(
        "ALTER TABLE ModelInference UPDATE input_messages = replaceOne(input_messages, 'a wall', unhex('c3'))"
        f" WHERE inference_id IN (SELECT id FROM JsonInference WHERE episode_id = '{bad}') {settings}"
    )
    with contextlib.closing(ClickHouseOrigin(url)) as origin:
        archive(origin, tmp_path / "folder")
    tally, of_database = exported(url, tmp_path / "database", max_bad=9)
    found, of_archive = exported(open_archive(tmp_path / "folder"), tmp_path / "archive", max_bad=9)
    assert {each.reason for each in tally.masked}
    assert found == tally
    assert of_archive.digest == of_database.digest
    with pytest.raises(DataError, match="text is not UTF-8"):
        exported(open_archive(tmp_path / "folder"), tmp_path / "refused")
    assert good != bad


def test_the_command_exports_from_a_folder(
    archives: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["export", "--source", str(archives["clickhouse"]), "-o", "store"]) == 0
    out, err = capsys.readouterr()
    assert f"reading {archives['clickhouse']}" in err
    manifest = open_store(tmp_path / "store").manifest
    assert out.splitlines()[-1].endswith(manifest.digest[:12])
    assert manifest.source["kind"] == "tensorzero-archive"
    # until when the archive's rows were read, and not when the store was made of them
    assert manifest.as_of is not None
    assert manifest.as_of < manifest.created_at
    assert run_command(["export", "--source", str(archives["clickhouse"]), "--function", "nope"]) == 2
    assert "no function 'nope'" in capsys.readouterr().err


def test_a_file_that_is_gone_is_named(archives: dict[str, Path], tmp_path: Path, capsys: Any) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(archives["clickhouse"], copy)
    path = next(copy.glob("json_inference/*.parquet"))
    path.write_bytes(b"x" * path.stat().st_size)
    assert run_command(["export", "--source", str(copy), "-o", str(tmp_path / "store")]) == 1
    assert str(copy) in capsys.readouterr().err
    path.unlink()
    assert run_command(["export", "--source", str(copy), "-o", str(tmp_path / "store")]) == 1
    assert f"{path} is missing" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()
