"""An export in parts: each episode in one of them, and the parts merged are the whole."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import trajkit
from tests.sources import conftest
from trajkit.cli.main import run as run_command
from trajkit.curation.merge import merge
from trajkit.engines.engine import Engine
from trajkit.errors import DataError, NothingMatched
from trajkit.schema import Manifest
from trajkit.sources import shards
from trajkit.sources.request import MetricCondition, Shard
from trajkit.sources.tensorzero.connect.slot import N_SLOTS, slot_of, slots_of
from trajkit.store.dataset import open_dataset

LATER = datetime(2027, 1, 1, tzinfo=UTC)
BOUND = {"metrics": (MetricCondition(name="episode_return", min=0.5),)}


@pytest.fixture(scope="module")
def urls(shared_clickhouse: str, shared_postgres: str) -> dict[str, str]:
    return {"clickhouse": shared_clickhouse, "postgres": shared_postgres}


def exported(url: str, goal: Path, **options: Any) -> Any:
    return conftest.exported(url, goal, as_of=LATER, include_eval=True, **options)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 4096])
def test_every_slot_is_of_one_shard(n: int) -> None:
    spans = [slots_of(number, n) for number in range(1, n + 1)]
    assert spans[0][0] == 0
    assert spans[-1][1] == N_SLOTS - 1
    assert all(one[1] + 1 == other[0] for one, other in itertools.pairwise(spans))
    for number, span in enumerate(spans):
        assert {slot * n // N_SLOTS for slot in span} == {number}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param("clickhouse", {}, id="clickhouse all", marks=pytest.mark.full),
        pytest.param("clickhouse", BOUND, id="clickhouse bound", marks=pytest.mark.full),
        pytest.param("postgres", {}, id="postgres all"),
        pytest.param("postgres", BOUND, id="postgres bound", marks=pytest.mark.full),
    ],
)
def test_merged_shards_have_the_digest_of_the_whole(
    kind: str, options: dict[str, Any], urls: dict[str, str], tmp_path: Path
) -> None:
    tally, whole = exported(urls[kind], tmp_path / "whole", **options)
    n = 2
    kept, ids = 0, set()
    for number in range(1, n + 1):
        goal = tmp_path / f"shard-{number}"
        of_shard, _ = exported(urls[kind], goal, shard=Shard(number=number, n=n), **options)
        assert of_shard.n_episodes_seen == tally.n_episodes_seen
        n_left = sum(each.n_episodes for each in of_shard.left)
        assert of_shard.n_episodes_kept + n_left == of_shard.n_episodes_seen
        n_steps_left = sum(each.n_steps for each in of_shard.left)
        assert of_shard.n_steps_kept + n_steps_left == of_shard.n_steps_seen
        found = {episode.episode_id for episode in open_dataset(goal)}
        assert {slot_of(episode_id) * n // N_SLOTS for episode_id in found} == {number - 1}
        kept += of_shard.n_episodes_kept
        ids |= found
    assert kept == len(ids) == tally.n_episodes_kept
    merged = merge([tmp_path / f"shard-{number}" for number in range(1, n + 1)], tmp_path / "merged")
    assert merged.manifest is not None
    assert merged.manifest.digest == whole.digest
    assert merged.manifest.counts == whole.counts


@pytest.mark.full
def test_the_command_takes_a_shard(
    urls: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    source = ["export", "--source", urls["clickhouse"], "--as-of", "2027-01-01"]
    assert run_command([*source, "--shard", "1/2", "-o", "one"]) == 0
    assert "left: another shard" in capsys.readouterr().out
    assert run_command([*source, "--shard", "2/2", "-o", "two"]) == 0
    assert run_command([*source, "-o", "whole"]) == 0
    assert run_command(["merge", "one", "two", "-o", "merged"]) == 0
    lines = capsys.readouterr().out.splitlines()
    whole, merged = (line for line in lines if line.startswith(("whole", "merged")))
    assert whole.split()[-1] == merged.split()[-1]


@pytest.mark.parametrize("text", ["3/2", "0/2", "1/0", "1", "a/b", "1/2/3", "-1/2"])
def test_a_shard_that_is_none_is_told(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["export", "--source", "http://127.0.0.1:9/x", f"--shard={text}"]) == 2
    err = capsys.readouterr().err
    assert "shard" in err
    assert "Traceback" not in err


def test_a_limit_does_not_go_with_a_shard(capsys: pytest.CaptureFixture[str]) -> None:
    source = ["export", "--source", "http://127.0.0.1:9/x"]
    assert run_command([*source, "--shard", "1/2", "--limit", "3"]) == 2
    assert "leave one out" in capsys.readouterr().err


def test_a_store_has_no_shards(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["export", "--source", "sample:babyai", "--shard", "1/2", "--dry-run"]) == 2
    assert "--shard is for databases" in capsys.readouterr().err


def without_times(manifest: Manifest) -> tuple[Any, ...]:
    lineage = [entry.model_dump(exclude={"done_at"}) for entry in manifest.lineage]
    return (
        manifest.digest,
        manifest.counts,
        manifest.source,
        manifest.metrics,
        manifest.kind,
        manifest.as_of,
        lineage,
    )


@pytest.mark.parametrize(
    ("kind", "numbers", "options"),
    [
        pytest.param("clickhouse", (2,), {"metric": "episode_return", "min": 0.5}, id="clickhouse bound"),
        pytest.param("postgres", (1, 3), {"include_eval": True}, id="postgres all", marks=pytest.mark.full),
    ],
)
def test_an_export_by_an_engine_is_that_of_one_process(
    kind: str,
    numbers: tuple[int, ...],
    options: dict[str, Any],
    urls: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CLICKHOUSE", "POSTGRES"):
        monkeypatch.delenv(f"TENSORZERO_{name}_URL", raising=False)
    monkeypatch.setenv(f"TENSORZERO_{kind.upper()}_URL", urls[kind])
    monkeypatch.chdir(tmp_path)
    alone = trajkit.export(as_of=LATER, output="alone", **options)
    assert alone.manifest is not None
    for n in numbers:
        monkeypatch.setattr(Engine, "n_shards", n)  # with one worker they run in this process
        shared = trajkit.export(as_of=LATER, output=f"shared-{n}", workers=1, **options)
        assert shared.manifest is not None
        assert without_times(shared.manifest) == without_times(alone.manifest)
        assert shared.tally == alone.tally
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] in ([], [".trajkit"])


@pytest.mark.full
def test_all_shards_see_one_moment_also_when_the_command_goes_on(
    urls: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORZERO_CLICKHOUSE_URL", urls["clickhouse"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Engine, "n_shards", 2)
    tried = []

    def fails_once(task: shards.Task) -> shards.Found:
        tried.append(task.request.as_of)
        if len(tried) == 2:
            raise DataError("row 7 of episode 'e2' cannot be read")
        return export_shard(task)

    export_shard = shards.export_shard
    fails_once.__module__, fails_once.__qualname__ = shards.__name__, "export_shard"
    monkeypatch.setattr(shards, "export_shard", fails_once)
    with pytest.raises(DataError, match="export, shard 2 of 2: row 7 of episode 'e2'"):
        trajkit.export(output="store", include_eval=True, workers=1)
    assert not (tmp_path / "store").exists()
    done = trajkit.export(output="store", include_eval=True, workers=1)
    assert len(tried) == 3  # the first shard was not exported again
    assert len(set(tried)) == 1
    assert done.manifest is not None
    assert done.manifest.as_of is not None
    assert "as_of" not in done.manifest.lineage[0].arguments


def test_an_export_by_an_engine_says_why_nothing_is_left(
    urls: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORZERO_CLICKHOUSE_URL", urls["clickhouse"])
    monkeypatch.chdir(tmp_path)
    messages = []
    for options in ({}, {"workers": 1}):
        with pytest.raises(NothingMatched) as caught:
            trajkit.export(metric="episode_return", min=1e30, as_of=LATER, output="store", **options)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_an_export_by_an_engine_needs_a_database_and_no_shard(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["export", "--source", "sample:babyai", "--workers", "2"]) == 2
    assert run_command(["export", "--source", "http://127.0.0.1:9/x", "--shard=1/2", "--on", "local"]) == 2
    errors = capsys.readouterr().err
    assert "a store is in parts already" in errors
    assert "leave one out" in errors
