"""A database as a folder of Parquet: made, made whole after a kill, brought up to date, proven complete."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from tests import warm
from tests.storage.server import BUCKET, Proxy, serving
from trajkit._core.address import Address, place_of
from trajkit._core.lock import locked
from trajkit._core.sending import changing, overwrite
from trajkit._core.user_state import user_state
from trajkit.cli.main import run as run_command
from trajkit.errors import ServiceError, StoreError
from trajkit.sources.tensorzero.archive import contents, copying
from trajkit.sources.tensorzero.archive.copying import Archived, archive
from trajkit.sources.tensorzero.archive.layout import TABLES
from trajkit.sources.tensorzero.archive.manifest import JOURNAL_NAME, MANIFEST_NAME, read_manifest
from trajkit.sources.tensorzero.archive.origin import ClickHouseOrigin
from trajkit.sources.tensorzero.archive.verify import Verification, verify

DAY_MS = 86_400_000


@pytest.fixture
def bring(url: str) -> Callable[[Path], Archived]:
    """Archive the database of the test."""

    def brought(folder: Path, **options: Any) -> Archived:
        with contextlib.closing(ClickHouseOrigin(url)) as origin:
            return archive(origin, folder, **options)

    return brought


@pytest.fixture
def compare(url: str) -> Callable[[Path], Verification]:
    """Compare an archive with the database of the test."""

    def compared(folder: Path) -> Verification:
        with contextlib.closing(ClickHouseOrigin(url)) as origin:
            return verify(origin, folder)

    return compared


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Every Parquet file with when it was written, and what tells it from another of the same name."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_ino)
        for path in folder.rglob("*.parquet")
    }


def ids(folder: Path, table: str) -> list[str]:
    manifest = read_manifest(folder)
    found = []
    for part in manifest.parts_of(table):
        found += pq.read_table(folder / part.path, columns=["id"]).column("id").to_pylist()
    return sorted(found)


def stored(folder: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table that has one file."""
    (part,) = read_manifest(folder).parts_of(table)
    return list(pq.read_table(folder / part.path).to_pylist())


def new(archived: Archived) -> dict[str, int]:
    return {name: n for name, n in archived.n_new.items() if n and name != "config_snapshot"}


def test_every_row_is_there_as_it_is_stored(rows: Any, bring: Any, client: Any, tmp_path: Path) -> None:
    rows.episode(0.7, tags={"b": "1", "a": "é"})
    output = [{"type": "text", "text": "hi"}]
    prompt = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    rows.chat_step(rows.id(), output=output, prompt=prompt, dynamic_tools=['{"a": 1}', "not json"])
    bring(tmp_path / "archive")
    for row in stored(tmp_path / "archive", "json_inference"):
        columns = "input, output, output_schema, inference_params, tags, processing_time_ms, function_name"
        sql = f"SELECT {columns} FROM JsonInference WHERE id = '{row['id']}'"
        (values,) = client.query(sql).result_rows
        named = dict(zip(columns.split(", "), values, strict=True))
        tags = [(pair["key"], pair["value"]) for pair in row["tags"]]
        assert {name: row[name] for name in named if name != "tags"} == {
            name: value for name, value in named.items() if name != "tags"
        }
        assert tags == list(named["tags"].items())
    (row,) = stored(tmp_path / "archive", "chat_inference")
    assert row["dynamic_tools"] == ['{"a": 1}', "not json"]
    (row,) = stored(tmp_path / "archive", "float_feedback")
    assert row["value"] == 0.699999988079071  # the 32-bit number, exactly


def test_an_archive_is_cut_into_days(rows: Any, bring: Any, tmp_path: Path) -> None:
    base = 1_780_000_000_000
    for day in range(3):
        rows.json_step(rows.id(), inference_id=rows.id(at_ms=base + day * DAY_MS), calls=0)
    archived = bring(tmp_path / "archive")
    parts = archived.manifest.parts_of("json_inference")
    assert [part.path for part in parts] == [
        f"json_inference/2026-{day}-00.parquet" for day in ("05-28", "05-29", "05-30")
    ]
    assert [part.n_rows for part in parts] == [1, 1, 1]


def test_a_later_run_brings_only_what_is_new(rows: Any, bring: Any, compare: Any, tmp_path: Path) -> None:
    base = 1_780_000_000_000
    folder = tmp_path / "archive"
    first = rows.id()
    rows.json_step(first, inference_id=rows.id(at_ms=base), calls=0)
    rows.json_step(first, inference_id=rows.id(at_ms=base + DAY_MS), calls=0)
    bring(folder)
    before = files(folder)
    # one of a new day, one that came late into a day that is archived
    rows.json_step(first, inference_id=rows.id(at_ms=base + 2 * DAY_MS), calls=0)
    rows.json_step(first, inference_id=rows.id(at_ms=base + DAY_MS - 1), calls=0)
    rows.float(first, 0.5, id=rows.id(at_ms=base + DAY_MS))
    archived = bring(folder)
    assert new(archived) == {"json_inference": 2, "float_feedback": 1}
    kept = before.keys() & files(folder).keys()
    assert {name: files(folder)[name] for name in kept} == {name: before[name] for name in kept}
    assert "json_inference/2026-05-28-00.parquet" in kept
    assert len(ids(folder, "json_inference")) == 4
    assert compare(folder).is_complete
    assert [run.n_rows for run in archived.manifest.runs][1] >= 3


@pytest.mark.full
def test_a_day_does_not_fall_into_many_small_files(rows: Any, bring: Any, tmp_path: Path) -> None:
    episode_id = rows.id()
    for number in range(3):
        rows.json_step(episode_id, inference_id=rows.id(at_ms=1_780_000_000_000 + number), calls=0)
        archived = bring(tmp_path / "archive")
    (part,) = archived.manifest.parts_of("json_inference")
    assert part.n_rows == 3
    assert files(tmp_path / "archive").keys() == {part.path for part in archived.manifest.parts}


@pytest.mark.full
def test_many_rows_that_are_missing_come_by_their_ids_day_by_day(
    rows: Any, bring: Any, compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_KEYS_AT_ONCE", 2)
    monkeypatch.setattr(copying, "_WINDOW_DAYS", 2)
    base, episode_id = 1_780_000_000_000, rows.id()
    steps: list[str] = []
    for _ in range(2):
        for number in range(10):
            at_ms = base + number // 2 * DAY_MS + len(steps)
            steps.append(rows.json_step(episode_id, inference_id=rows.id(at_ms=at_ms), calls=0))
        assert new(bring(tmp_path / "archive")) == {"json_inference": 10}
    assert ids(tmp_path / "archive", "json_inference") == sorted(steps)
    assert compare(tmp_path / "archive").is_complete


def test_what_the_database_has_lost_stays_in_the_archive(
    rows: Any, bring: Any, compare: Any, client: Any, tmp_path: Path
) -> None:
    base, folder = 1_780_000_000_000, tmp_path / "archive"
    episode_id = rows.id()
    steps = [
        rows.json_step(episode_id, inference_id=rows.id(at_ms=base + day * DAY_MS + number), calls=0)
        for day in range(2)
        for number in range(2)
    ]
    bring(folder)
    # a whole day, and one row of another
    for step in (*steps[:2], steps[2]):
        client.command(f"DELETE FROM JsonInference WHERE id = '{step}'")
    before = files(folder)
    for _ in range(2):
        assert new(bring(folder)) == {}
        assert ids(folder, "json_inference") == sorted(steps)
    assert files(folder) == before
    found = compare(folder)
    assert found.is_complete
    assert {day.day: day.n_gone for day in found.days if day.table == "json_inference"} == {
        20601: 2,
        20602: 1,
    }
    late = rows.json_step(episode_id, inference_id=rows.id(at_ms=base + DAY_MS + 7), calls=0)
    assert new(bring(folder)) == {"json_inference": 1}
    assert ids(folder, "json_inference") == sorted([*steps, late])


@pytest.mark.full
def test_rows_that_are_stored_twice_are_archived_twice(
    rows: Any, bring: Any, compare: Any, client: Any, tmp_path: Path
) -> None:
    episode_id = rows.episode(0.5, n_steps=1)
    bring(tmp_path / "archive")
    client.command(f"INSERT INTO JsonInference SELECT * FROM JsonInference WHERE episode_id = '{episode_id}'")
    bring(tmp_path / "archive")
    assert len(ids(tmp_path / "archive", "json_inference")) == 2
    assert compare(tmp_path / "archive").is_complete


@pytest.mark.full
def test_a_configuration_that_is_used_anew_is_not_kept_twice(
    bring: Any, compare: Any, client: Any, tmp_path: Path
) -> None:
    bring(tmp_path / "archive")
    client.command(
        "INSERT INTO ConfigSnapshot (config, extra_templates, hash, tensorzero_version, last_used)"
        " SELECT config, extra_templates, hash, tensorzero_version, now64() + 5"
        " FROM ConfigSnapshot FINAL"
    )
    client.command(
        "INSERT INTO ConfigSnapshot (config, extra_templates, hash, tensorzero_version)"
        " VALUES ('a = 1', map('t', 'x'), 7, '1')"
    )
    bring(tmp_path / "archive")
    found = stored(tmp_path / "archive", "config_snapshot")
    assert len(found) == client.command("SELECT uniqExact(hash) FROM ConfigSnapshot")
    mine = next(row for row in found if row["hash"] == f"{7:064x}")
    assert (mine["config"], mine["templates"]) == ("a = 1", [{"key": "t", "value": "x"}])
    assert compare(tmp_path / "archive").is_complete
    client.command("DELETE FROM ConfigSnapshot WHERE hash = 7")


def test_no_column_of_these_tables_is_left_out(server: Any, client: Any) -> None:
    """What the gateway's own schema has; `timestamp` is computed from the id."""
    with contextlib.closing(ClickHouseOrigin(server.secret_url.get_secret_value())) as origin:
        for table in TABLES:
            stored = origin.dialect.stored[table.name]
            columns = "SELECT name FROM system.columns WHERE database = currentDatabase()"
            rows = client.query(f"{columns} AND table = '{stored.name}'").result_rows
            there = {row[0] for row in rows} - {"timestamp", "is_deleted"}
            ours = {stored.renamed.get(column.name, column.name) for column in table.columns}
            assert there == ours, table.name
            assert origin._columns(table).keys() == {column.name for column in table.columns}


@pytest.mark.full
def test_datasets_and_evaluations_are_renewed_when_they_change(
    url: str, bring: Any, compare: Any, client: Any, tmp_path: Path
) -> None:
    def datapoint(output: str, updated_at: str) -> None:
        client.command(
            "INSERT INTO JsonInferenceDatapoint (dataset_name, function_name, id, input, output,"
            " output_schema, tags, auxiliary, updated_at)"
            " VALUES ('d', 'act', '01900000-0000-7000-8000-000000000001', '{}',"
            f" '{output}', '{{}}', map(), '', '{updated_at}')"
        )

    def row(table: str) -> dict[str, Any]:
        (found,) = stored(tmp_path / "archive", table)
        return found

    try:
        datapoint("one", "2026-01-01 00:00:00")
        client.command(
            "INSERT INTO DynamicEvaluationRun (run_id_uint, variant_pins, tags, project_name) VALUES"
            " (toUInt128(toUUID('01900000-0000-7000-8000-0000000000ff')), map('act', 'a'), map(), 'p')"
        )
        bring(tmp_path / "archive")
        assert (row("json_datapoint")["output"], row("json_datapoint")["updated_at"].year) == ("one", 2026)
        run = row("evaluation_run")
        assert (run["run_id"], run["project_name"]) == ("01900000-0000-7000-8000-0000000000ff", "p")
        assert run["variant_pins"] == [{"key": "act", "value": "a"}]
        datapoint("two", "2026-01-02 00:00:00")
        assert not compare(tmp_path / "archive").is_complete
        assert new(bring(tmp_path / "archive")) == {}
        assert row("json_datapoint")["output"] == "two"
        assert compare(tmp_path / "archive").is_complete
        client.command("TRUNCATE TABLE JsonInferenceDatapoint")
        bring(tmp_path / "archive")
        assert row("json_datapoint")["output"] == "two"  # the database has lost it
    finally:
        for table in ("JsonInferenceDatapoint", "DynamicEvaluationRun"):
            client.command(f"TRUNCATE TABLE {table}")


@pytest.mark.full
def test_texts_that_are_not_utf8_are_kept_byte_by_byte(
    rows: Any, bring: Any, compare: Any, client: Any, tmp_path: Path
) -> None:
    rows.json_step(rows.id(), calls=0)
    rows.json_step(rows.id(), calls=0)
    odd = rows.json_step(rows.id(), calls=0, observation="odd")
    client.command(
        "ALTER TABLE JsonInference UPDATE input = concat(unhex('ff41'), input),"
        f" tags = map('k', unhex('fe')) WHERE id = '{odd}' SETTINGS mutations_sync = 1"
    )
    bring(tmp_path / "archive")
    found = {row["id"]: row for row in stored(tmp_path / "archive", "json_inference")}
    marks = {mark["name"]: mark["bytes"] for mark in found[odd]["not_utf8"]}
    assert marks["input"].startswith(b"\xffA{")
    assert marks["tags"] == b"1:k1:\xfe"
    assert found[odd]["input"].startswith("\ufffdA{")
    assert [row["not_utf8"] for row in found.values()].count(None) == 2
    assert compare(tmp_path / "archive").is_complete


@pytest.mark.full
def test_a_missing_a_changed_and_a_newer_row_are_told_apart(
    rows: Any, bring: Any, compare: Any, client: Any, tmp_path: Path
) -> None:
    base, episode_id = 1_780_000_000_000, rows.id()
    first = rows.json_step(episode_id, inference_id=rows.id(at_ms=base), calls=0)
    rows.json_step(episode_id, inference_id=rows.id(at_ms=base + DAY_MS), calls=0)
    rows.float(episode_id, 0.25, id=rows.id(at_ms=base))
    bring(tmp_path / "archive")
    client.command(
        f"ALTER TABLE JsonInference UPDATE output = 'x' WHERE id = '{first}' SETTINGS mutations_sync = 1"
    )
    late = rows.json_step(episode_id, inference_id=rows.id(at_ms=base + DAY_MS + 1), calls=0)
    rows.json_step(episode_id, inference_id=rows.id(at_ms=int(time.time() * 1000) + 60_000), calls=0)
    found = compare(tmp_path / "archive")
    assert not found.is_complete
    days = {day.day: day for day in found.days if day.table == "json_inference"}
    assert (days[20601].n_different, days[20601].example) == (1, first)
    assert (days[20602].n_missing, days[20602].n_there, days[20602].n_here) == (1, 2, 1)
    assert days[20602].example == late
    assert [day.n_newer for day in days.values()] == [0, 0, 1]
    assert all(day.is_complete for day in found.days if day.table != "json_inference")


def test_a_damaged_file_is_found(rows: Any, bring: Any, compare: Any, tmp_path: Path) -> None:
    rows.episode(0.5)
    archived = bring(tmp_path / "archive")
    path = tmp_path / "archive" / archived.manifest.parts_of("json_inference")[0].path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="sha256 differs"):
        compare(tmp_path / "archive")
    path.write_bytes(content[:-1])
    with pytest.raises(StoreError, match="the manifest says"):
        read_manifest(tmp_path / "archive")
    path.unlink()
    with pytest.raises(StoreError, match="is missing"):
        read_manifest(tmp_path / "archive")


def test_a_run_that_was_killed_goes_on(rows: Any, url: str, bring: Any, compare: Any, tmp_path: Path) -> None:
    for _ in range(3):
        rows.episode(0.5, n_steps=3)
    bring(tmp_path / "undisturbed")
    folder = tmp_path / "archive"
    # the process kills itself, hard, after some files: no handler of its own may tidy up
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from trajkit.sources.tensorzero.archive import copying\n"
        "from trajkit.sources.tensorzero.archive.origin import ClickHouseOrigin\n"
        "from trajkit.sources.tensorzero.archive.part import PartFile\n"
        "add = PartFile.add\n"
        "def deadly(self, batch):\n"
        "    add(self, batch)\n"
        "    if self._table.name == sys.argv[3]:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "PartFile.add = deadly\n"
        "copying.archive(ClickHouseOrigin(sys.argv[1]), Path(sys.argv[2]))\n"
    )
    for table in ("json_inference", "float_feedback"):
        ended = warm.trajkit([script, url, str(folder), table], tmp_path, dict(os.environ), module="-c")
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert not (folder / MANIFEST_NAME).exists()
        assert (folder / JOURNAL_NAME).exists()
    before = files(folder)
    archived = bring(folder)
    assert archived.was_interrupted
    assert compare(folder).is_complete
    done = {part.path for part in archived.manifest.parts} & before.keys()
    assert {path.partition("/")[0] for path in done} == {"json_inference", "model_inference"}
    assert {name: files(folder)[name] for name in done} == {name: before[name] for name in done}
    for table in ("json_inference", "model_inference", "float_feedback"):
        assert ids(folder, table) == ids(tmp_path / "undisturbed", table)
    assert {path.name for path in folder.iterdir() if path.name.startswith(".")} <= {".lock"}
    assert files(folder).keys() == {part.path for part in archived.manifest.parts}


@pytest.mark.full
def test_a_journal_whose_last_line_was_cut_off_is_read(rows: Any, bring: Any, tmp_path: Path) -> None:
    rows.episode(0.5)
    folder = tmp_path / "archive"
    bring(folder)
    source = read_manifest(folder).source
    (folder / JOURNAL_NAME).write_text(json.dumps({"source": source}) + '\n{"part": {"pa')
    rows.episode(0.5)
    assert bring(folder).was_interrupted
    assert len(ids(folder, "json_inference")) == 4


def test_an_archive_of_a_stranger_removes_and_changes_no_file_outside_of_it(
    rows: Any, url: str, bring: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows.episode(0.5)
    folder, mine = tmp_path / "archive", tmp_path / "mine"
    bring(folder)
    mine.mkdir()
    (mine / "file.parquet").write_text("mine")
    journal = folder / JOURNAL_NAME
    manifest = read_manifest(folder)
    begun = json.dumps({"source": manifest.source}) + "\n"
    part = manifest.parts[0].model_dump(mode="json")
    added = {"part": part, "n_new": 0, "replaces": []}
    again = ["archive", "--source", url, "-o", str(folder)]
    for entry in (
        {**added, "replaces": ["../mine/file.parquet"]},
        {**added, "replaces": [str(mine / "file.parquet")]},
        {**added, "part": {**part, "path": "../mine/file.parquet", "n_bytes": 4}},
        {"part": part},
        {"gone": 1},
        ["part"],
    ):
        journal.write_text(begun + json.dumps(entry) + "\n")
        assert run_command(again) == 1
        assert "make" in capsys.readouterr().err
    journal.unlink()
    journal.symlink_to(mine / "file.parquet")
    assert run_command(again) == 1
    journal.unlink()
    (folder / "json_inference").rename(tmp_path / "moved")
    (folder / "json_inference").symlink_to(mine)
    (mine / "none").write_text("mine")
    assert run_command(again) == 1
    (folder / MANIFEST_NAME).unlink()
    assert run_command(again) == 1
    assert "json_inference is a link" in capsys.readouterr().err
    assert sorted((path.name, path.read_text()) for path in mine.iterdir()) == [
        ("file.parquet", "mine"),
        ("none", "mine"),
    ]


@pytest.mark.full
def test_a_file_that_a_run_wrote_down_and_did_not_keep_is_brought_again(
    rows: Any, bring: Any, compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.episode(0.5)
    folder = tmp_path / "archive"
    with monkeypatch.context() as patch:
        patch.setattr(ClickHouseOrigin, "rows", failing_at("float_feedback"))
        with pytest.raises(ServiceError):
            bring(folder)
    path = next(folder.glob("json_inference/*.parquet"))
    path.write_bytes(path.read_bytes()[:100])  # as after a power cut
    bring(folder)
    assert len(ids(folder, "json_inference")) == 2
    assert compare(folder).is_complete


@pytest.mark.full
def test_a_day_that_was_half_brought_is_completed_and_not_brought_again(
    rows: Any, bring: Any, compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "_PART_ROWS", 2)
    monkeypatch.setattr(contents, "_SMALL_BYTES", 0)
    episode_id = rows.id()
    steps = [rows.json_step(episode_id, calls=0) for _ in range(7)]
    folder, real = tmp_path / "archive", ClickHouseOrigin.rows

    def breaks_off(self: Any, table: Any, days: Any) -> Any:
        single = (batch.slice(row, 1) for batch in real(self, table, days) for row in range(batch.num_rows))
        for n_before, row in enumerate(single):
            if n_before == 5 and table.name == "json_inference":
                raise ServiceError("the connection is reset")
            yield row

    with monkeypatch.context() as patch:
        patch.setattr(ClickHouseOrigin, "rows", breaks_off)
        with pytest.raises(ServiceError, match="reset"):
            bring(folder)
    before = files(folder)
    assert len(before) == 2
    asked: list[int] = []
    rows_of = ClickHouseOrigin.rows_of
    monkeypatch.setattr(ClickHouseOrigin, "rows_of", lambda *of: asked.append(len(of[2])) or rows_of(*of))
    bring(folder)
    assert asked == [3]
    assert {name: files(folder)[name] for name in before} == before
    assert ids(folder, "json_inference") == sorted(steps)
    assert compare(folder).is_complete


def failing_at(name: str) -> Callable[..., Any]:
    """The rows of every table until this one."""
    real = ClickHouseOrigin.rows

    def rows(self: Any, table: Any, days: Any) -> Any:
        if table.name == name:
            raise ServiceError("the database is gone")
        return real(self, table, days)

    return rows


def test_an_archive_of_another_database_is_left_alone(rows: Any, bring: Any, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    bring(folder)
    manifest = folder / MANIFEST_NAME
    value = json.loads(manifest.read_text())
    value["source"] |= {"url": "http://elsewhere:8123/tensorzero", "deployment_id": "another"}
    manifest.write_text(json.dumps(value))
    with pytest.raises(StoreError, match="is an archive of http://elsewhere"):
        bring(folder)
    assert not (folder / JOURNAL_NAME).exists()  # which would bar the right database
    bring(folder, is_moved=True)
    assert "elsewhere" not in manifest.read_text()


def test_a_folder_that_is_something_else_is_left_alone(bring: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(StoreError, match="not an archive and not empty"):
        bring(tmp_path / "mine")
    with pytest.raises(StoreError, match="is not a folder"):
        bring(tmp_path / "mine" / "thesis.txt")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "x"


def test_two_runs_at_a_time_are_refused(rows: Any, bring: Any, tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    with (
        locked(tmp_path / "archive" / ".lock"),
        pytest.raises(StoreError, match="is being written by process"),
    ):
        bring(tmp_path / "archive")


def test_an_archive_of_a_newer_trajkit_and_a_part_outside_of_it_are_refused(
    rows: Any, bring: Any, tmp_path: Path
) -> None:
    rows.episode(0.5)
    bring(tmp_path / "archive")
    path = tmp_path / "archive" / MANIFEST_NAME
    written = path.read_text()
    path.write_text(json.dumps(json.loads(written) | {"format_version": 2}))
    with pytest.raises(StoreError, match="archive version 2; this trajkit reads up to 1"):
        read_manifest(tmp_path / "archive")
    path.write_text(
        written.replace('"path":"json_inference/', '"path":"../json_inference/', 1).replace(
            '"path": "json_inference/', '"path": "../json_inference/', 1
        )
    )
    with pytest.raises(StoreError, match="cannot be a part"):
        read_manifest(tmp_path / "archive")


def test_every_table_is_a_table_of_parquet_for_anyone_and_no_file_has_a_credential(
    rows: Any, bring: Any, tmp_path: Path
) -> None:
    rows.episode(0.5, tags={"trajkit.task": "goto"})
    bring(tmp_path / "archive")
    secret = b"only looks"
    for path in (tmp_path / "archive").rglob("*"):
        if path.is_file():
            assert secret not in path.read_bytes()
    source = json.dumps(read_manifest(tmp_path / "archive").source)
    assert "reader" not in source
    assert "@" not in source
    with duckdb.connect() as connection:
        paths = f"{tmp_path}/archive/json_inference/*.parquet"
        rows_found = connection.execute(
            f"SELECT map_from_entries(tags)['trajkit.task'] FROM '{paths}'"
        ).fetchall()
    assert rows_found == [("goto",), ("goto",)]
    names = {table.name for table in TABLES}
    assert {path.name for path in (tmp_path / "archive").iterdir() if path.is_dir()} <= names


def test_the_command_tells_what_it_brought_and_verify_fails_with_the_day(
    rows: Any, url: str, client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    episode_id = rows.episode(0.5)
    folder = tmp_path / "archive"
    assert run_command(["archive", "--source", url, "-o", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].split() == ["table", "new", "rows", "days", "size"]
    assert "json_inference" in out
    assert out.splitlines()[-1].startswith(f"{folder}  ")
    assert "only looks" not in out + err
    assert run_command(["archive", "verify", str(folder), "--source", url]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"{folder} is complete: it has every row of the database"
    )
    late = rows.json_step(episode_id, calls=0)
    assert run_command(["archive", "verify", str(folder), "--source", url]) == 1
    out = capsys.readouterr().out
    assert f"json_inference 2026-05-28: 1 missing, such as {late}" in out
    assert run_command(["archive", "verify", str(folder), "--source", url, "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["is_complete"] is False
    assert {day["n_missing"] for day in answer["days"]} == {0, 1}
    for day in answer["days"]:
        assert (day["sum_there"] == day["sum_here"]) == (day["n_missing"] == 0)
    assert run_command(["archive", "--source", url, "-o", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_new"]["json_inference"] == 1


def test_bad_requests_are_told_before_anything_is_done(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["archive", "--source", url]) == 2
    assert "no folder for the archive" in capsys.readouterr().err
    assert run_command(["archive", "--source", str(tmp_path), "-o", str(tmp_path / "a")]) == 2
    assert "is not a database" in capsys.readouterr().err
    assert run_command(["archive", "verify", str(tmp_path), "--source", url]) == 1
    assert "is not an archive" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_a_database_that_fails_in_between_leaves_nothing_that_looks_finished(
    rows: Any, bring: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.episode(0.5)
    folder = tmp_path / "archive"
    monkeypatch.setattr(ClickHouseOrigin, "rows", failing_at("model_inference"))
    with pytest.raises(ServiceError, match="gone"):
        bring(folder)
    assert not (folder / MANIFEST_NAME).exists()
    monkeypatch.undo()
    assert bring(folder).was_interrupted
    assert len(ids(folder, "model_inference")) == 2
    assert (folder / MANIFEST_NAME).exists()


def test_rows_of_a_day_that_also_lost_some_come_after_a_run_that_failed(
    rows: Any, bring: Any, client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    base, episode, folder = 1_780_000_000_000, rows.id(), tmp_path / "archive"
    lost, late = rows.id(at_ms=base), rows.id(at_ms=base + 1)
    rows.json_step(episode, inference_id=lost, calls=0)
    bring(folder)
    client.command(f"DELETE FROM JsonInference WHERE id = '{lost}'")
    rows.json_step(episode, inference_id=late, calls=0)

    def down(*given: object) -> None:
        raise ServiceError("the database is gone")

    with monkeypatch.context() as patch:
        patch.setattr(ClickHouseOrigin, "rows_of", down)
        with pytest.raises(ServiceError):
            bring(folder)
    bring(folder)
    assert ids(folder, "json_inference") == sorted([lost, late])


@pytest.fixture(scope="module")
def s3() -> Iterator[Proxy]:
    with serving("s3") as running:
        yield running


@pytest.fixture
def address(s3: Proxy, request: pytest.FixtureRequest) -> Iterator[Address]:
    """An address of this test's own."""
    s3.requests.clear()
    place = place_of(f"s3://{BUCKET}/{request.node.name}")
    assert isinstance(place, Address)
    yield place
    s3.fault = lambda method, path: None


def sent(s3: Proxy) -> list[str]:
    """The Parquet files that were written, in order."""
    puts = [each.path for each in s3.requests if each.method == "PUT" and each.path.endswith(".parquet")]
    return ["/".join(path.split("/")[-2:]) for path in puts]


@pytest.mark.full
def test_an_archive_at_an_address_is_made_and_updated_as_in_a_folder(
    rows: Any, url: str, bring: Any, address: Address, s3: Proxy, tmp_path: Path
) -> None:
    base, first, folder = 1_780_000_000_000, rows.id(), tmp_path / "archive"
    rows.json_step(first, inference_id=rows.id(at_ms=base), calls=0)
    rows.json_step(first, inference_id=rows.id(at_ms=base + DAY_MS), calls=0)
    assert bring(address).manifest.parts == bring(folder).manifest.parts
    s3.requests.clear()
    rows.json_step(first, inference_id=rows.id(at_ms=base + DAY_MS - 1), calls=0)  # late, into a known day
    rows.float(first, 0.5, id=rows.id(at_ms=base + DAY_MS))
    here, there = bring(folder), bring(address)
    assert there.manifest.parts == here.manifest.parts
    assert new(there) == {"json_inference": 1, "float_feedback": 1}
    assert [name for name in sent(s3) if "config" not in name] == [
        "json_inference/2026-05-29-01.parquet",
        "float_feedback/2026-05-29-00.parquet",
    ]
    assert set(address.sizes()) == {MANIFEST_NAME, *(part.path for part in there.manifest.parts)}
    assert not place_of(f"{address}.writing").exists()
    assert not list(user_state("archiving").glob("*"))
    assert run_command(["archive", "verify", str(address), "--source", url]) == 0
    for source, goal in ((str(address), "there"), (str(folder), "here")):
        goal = str(tmp_path / goal)
        assert run_command(["export", "--source", source, "--function", "act", "-o", goal]) == 0
    stores = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("there", "here")]
    assert stores[0]["digest"] == stores[1]["digest"]


def test_a_run_that_failed_on_its_way_to_an_address_goes_on_there(
    rows: Any, bring: Any, address: Address, s3: Proxy
) -> None:
    rows.episode(0.7)
    s3.fault = lambda method, path: (
        "403" if method == "DELETE" or (method == "PUT" and "float_feedback" in path) else None
    )
    with pytest.raises(StoreError, match="refused"):
        bring(address)
    assert place_of(f"{address}.writing").exists()  # the claim could not be removed
    with pytest.raises(StoreError, match="not an archive"):
        read_manifest(address)
    s3.fault = lambda method, path: None
    before = sent(s3)
    s3.requests.clear()
    archived = bring(address)
    assert archived.was_interrupted
    assert not {*before} & {*sent(s3)} - {before[-1]}
    assert set(address.sizes()) == {MANIFEST_NAME, *(part.path for part in archived.manifest.parts)}


def test_an_archive_at_an_address_has_one_writer_and_nothing_else_in_its_place(
    rows: Any, bring: Any, address: Address
) -> None:
    rows.episode(0.7)
    with changing(address, address / MANIFEST_NAME), pytest.raises(StoreError, match="by another process"):
        bring(address)
    claim = place_of(f"{address}.writing")
    overwrite(claim, b"of another machine")
    with pytest.raises(StoreError, match="or one was stopped there"):
        bring(address)
    claim.unlink()
    overwrite(address / "notes.txt", b"hello")
    with pytest.raises(StoreError, match="is not an archive and not empty"):
        bring(address)
    assert set(address.sizes()) == {"notes.txt"}
