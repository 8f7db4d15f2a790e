"""Several stores made one: the digest of the whole, nothing twice, nothing lost in silence."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from trajkit.cli.main import run as run_command
from trajkit.curation.merge import OTHER, SAME, merge
from trajkit.errors import DataError, RequestError, StoreError
from trajkit.schema import Episode, Feedback, Manifest
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import open_store, verify
from trajkit.store.writer import write_episodes

Write = Callable[[Iterable[Episode]], Path]


def left(entry: Any) -> dict[str, tuple[int, int]]:
    return {each.reason: (each.n_episodes, each.n_steps) for each in entry.left}


def merged_into(goal: Path, *stores: Path) -> Manifest:
    manifest = merge(stores, goal).manifest
    assert manifest is not None
    return manifest


def set_in_manifest(path: Path, **values: Any) -> None:
    manifest = path / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | values))


def test_shards_merged_in_any_order_have_the_digest_of_the_whole(
    attempt: Any, write: Write, tmp_path: Path
) -> None:
    episodes = [attempt(f"e{number:02}", n_steps=1 + number % 4, score=number / 10) for number in range(20)]
    whole = open_store(write(episodes))
    shards = [write(episodes[number::3]) for number in range(3)]
    merged = merge(shards, tmp_path / "merged")
    assert merged.manifest is not None
    assert merged.manifest.digest == whole.manifest.digest
    assert merged.manifest.counts == whole.manifest.counts
    assert list(open_dataset(tmp_path / "merged")) == list(open_dataset(whole.path))
    verify(open_store(tmp_path / "merged"), deep=True)
    assert merged.entry.left == ()
    assert (merged.entry.n_episodes_in, merged.entry.n_episodes_out) == (20, 20)
    assert merged_into(tmp_path / "other", *shards[::-1]).digest == whole.manifest.digest


@pytest.mark.full
def test_stores_with_different_metrics_get_the_columns_of_all(
    attempt: Any, write: Write, tmp_path: Path
) -> None:
    scored = attempt("a", score=0.5, step={"metrics": {"step_ok": True}})
    unscored = attempt("b", score=None)
    other = attempt("c", score=None).model_copy(update={"metrics": {"success": True}})
    stores = [write([scored]), write([unscored]), write([other])]
    merged = merged_into(tmp_path / "merged", *stores)
    assert [(metric.name, metric.level) for metric in merged.metrics] == [
        ("episode_return", "episode"),
        ("success", "episode"),
        ("step_ok", "inference"),
    ]
    assert merged.digest == open_store(write([scored, unscored, other])).manifest.digest
    found = {episode.episode_id: episode for episode in open_dataset(tmp_path / "merged")}
    assert found == {"a": scored, "b": unscored, "c": other}
    verify(open_store(tmp_path / "merged"), deep=True)


def test_an_episode_that_is_the_same_in_two_stores_is_kept_once_and_counted(
    attempt: Any, write: Write, tmp_path: Path
) -> None:
    both = attempt("b", n_steps=3)
    merged = merge([write([attempt("a"), both]), write([both, attempt("c")])], tmp_path / "merged")
    assert left(merged.entry) == {SAME: (1, 3)}
    assert [episode.episode_id for episode in open_dataset(tmp_path / "merged")] == ["a", "b", "c"]
    assert merged.entry.arguments["stores"][1]["n_episodes"] == 1


def test_an_episode_that_differs_is_an_error_that_names_it(
    attempt: Any, write: Write, tmp_path: Path
) -> None:
    one = write([attempt("a"), attempt("b", score=0.1), attempt("c", score=0.1)])
    other = write([attempt("b", score=0.9), attempt("c", score=0.9)])
    with pytest.raises(
        DataError, match=r"episode b is in .* with different content, and so are 1 more"
    ) as caught:
        merge([one, other], tmp_path / "merged")
    assert str(one) in caught.value.message
    assert str(other) in caught.value.message
    assert "--prefer last" in str(caught.value.hint)
    assert not (tmp_path / "merged").exists()


@pytest.mark.full
@pytest.mark.parametrize(("prefer", "score"), [("first", 0.1), ("last", 0.9)])
def test_a_preference_says_whose_episode_stays(
    prefer: str, score: float, attempt: Any, write: Write, tmp_path: Path
) -> None:
    one = write([attempt("a", score=0.1), attempt("same")])
    middle = write([attempt("a", score=0.5)])
    other = write([attempt("a", score=0.9, n_steps=1), attempt("same")])
    merged = merge([one, middle, other], tmp_path / "merged", prefer=prefer)
    found = {episode.episode_id: episode for episode in open_dataset(tmp_path / "merged")}
    assert found["a"].metrics == {"episode_return": score}
    assert left(merged.entry) == {SAME: (1, 2), OTHER: (2, 3 if prefer == "first" else 4)}
    assert merged.entry.arguments["prefer"] == prefer
    assert merged.entry.n_episodes_out == 2
    verify(open_store(tmp_path / "merged"), deep=True)


def test_feedback_comes_along_with_the_copy_that_stays(attempt: Any, write: Write, tmp_path: Path) -> None:
    def judged(value: float) -> Episode:
        feedback = Feedback(
            feedback_id=f"f{value}",
            episode_id="a",
            kind="float",
            metric_name="episode_return",
            value=value,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        return attempt("a", score=value).model_copy(update={"feedback": (feedback,)})

    stores = [write([judged(0.1), attempt("b")]), write([judged(0.9)])]
    merge(stores, tmp_path / "merged", prefer="last")
    found = {episode.episode_id: episode for episode in open_dataset(tmp_path / "merged")}
    assert [each.value for each in found["a"].feedback] == [0.9]


def test_a_metric_of_two_kinds_is_refused(attempt: Any, write: Write, tmp_path: Path) -> None:
    number = attempt("a", score=None).model_copy(update={"metrics": {"success": 0.5}})
    boolean = attempt("b", score=None).model_copy(update={"metrics": {"success": True}})
    with pytest.raises(DataError, match=r"metric 'success' on episodes is a number in .* and a boolean in"):
        merge([write([number]), write([boolean])], tmp_path / "merged")


def test_a_metric_that_is_better_high_here_and_low_there_is_refused(
    attempt: Any, write: Write, tmp_path: Path
) -> None:
    stores = [write([attempt("a")]), write([attempt("b")])]
    for store, optimize in zip(stores, ("max", "min"), strict=True):
        metrics = [{"name": "episode_return", "level": "episode", "kind": "float", "optimize": optimize}]
        set_in_manifest(store, metrics=metrics)
    with pytest.raises(DataError, match=r"better when high in .* and better when low in"):
        merge(stores, tmp_path / "merged")
    set_in_manifest(stores[1], metrics=[{"name": "episode_return", "level": "episode", "kind": "float"}])
    merged = merged_into(tmp_path / "merged", *stores)
    assert [metric.optimize for metric in merged.metrics] == ["max"]


def test_stores_that_cannot_be_merged_are_refused(attempt: Any, write: Write, tmp_path: Path) -> None:
    one, other = stores = [write([attempt("a")]), write([attempt("b")])]
    with pytest.raises(RequestError, match="two or more"):
        merge([one], tmp_path / "merged")
    with pytest.raises(RequestError, match="is given twice"):
        merge([one, one], tmp_path / "merged")
    with pytest.raises(RequestError, match="neither 'first' nor 'last'"):
        merge(stores, tmp_path / "merged", prefer="newest")
    part = next((one / "steps").glob("*.parquet"))
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    with pytest.raises(StoreError, match="sha256 differs"):
        merge(stores, tmp_path / "merged")
    set_in_manifest(other, format_version=2)
    with pytest.raises(StoreError, match="store version 2; this trajkit reads up to 1"):
        merge(stores, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("n_before", daily([0, 1], 1))
def test_the_lineage_keeps_the_parents_and_what_was_done_before_the_ways_parted(
    attempt: Any, write: Write, tmp_path: Path, n_before: int
) -> None:
    base = write([attempt("a"), attempt("b", score=0.9)])
    for place in range(n_before):
        first = tmp_path / f"first-{place}"
        assert run_command(["select", str(base), "--where", "episode_return >= 0", "-o", str(first)]) == 0
        base = first
    for name, where in (("low", "episode_return < 0.7"), ("high", "episode_return >= 0.7")):
        assert run_command(["select", str(base), "--where", where, "-o", str(tmp_path / name)]) == 0
    merged, before = merged_into(tmp_path / "merged", tmp_path / "low", tmp_path / "high"), open_store(base)
    assert merged.digest == before.manifest.digest
    *history, entry = merged.lineage
    assert history == list(before.manifest.lineage[:n_before])
    assert ([each.verb for each in history], entry.verb) == (["select"] * n_before, "merge")
    parents: Any = entry.arguments["stores"]
    assert [parent["digest"] for parent in parents] == [
        open_store(tmp_path / name).manifest.digest for name in ("low", "high")
    ]
    assert [[each["verb"] for each in parent["lineage"]] for parent in parents] == [["select"], ["select"]]


@pytest.mark.full
def test_what_all_stores_agree_on_is_kept(attempt: Any, tmp_path: Path) -> None:
    source = {"kind": "tensorzero-clickhouse", "url": "http://here:8123/tensorzero"}
    times = [datetime(2026, 1, day, tzinfo=UTC) for day in (3, 2)]
    for number, time in enumerate(times):
        write_episodes(
            tmp_path / f"s{number}", [attempt(f"e{number}")], kind="export", source=source, as_of=time
        )
    merged = merged_into(tmp_path / "merged", tmp_path / "s0", tmp_path / "s1")
    assert (merged.source, merged.as_of, merged.kind) == (source, times[1], "merge")
    write_episodes(tmp_path / "s2", [attempt("e2")], kind="export", source={"kind": "other"})
    merged = merged_into(tmp_path / "more", tmp_path / "merged", tmp_path / "s2")
    assert merged.as_of is None
    assert merged.source == {"kind": "merge", "sources": [source, {"kind": "other"}]}


@pytest.mark.full
def test_memory_does_not_grow_with_the_stores(attempt: Any, write: Write, tmp_path: Path) -> None:
    """What Python holds: the files are copied, not read. DuckDB has a limit of its own."""

    def peak(n_episodes: int) -> int:
        prompts = ["x" * 2000] * 2
        stores = [
            write(attempt(f"e{start + number:05}", prompts=prompts) for number in range(n_episodes))
            for start in (0, 50_000)
        ]
        tracemalloc.start()
        merge(stores, tmp_path / f"merged-{n_episodes}")
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    small = peak(20)
    assert peak(800) < small + 1_000_000


@pytest.mark.full
def test_a_merge_of_two_parts_of_each_store_keeps_its_episodes_whole(
    attempt: Any, attempts: Any, tmp_path: Path
) -> None:
    episodes = [attempt(name, n_steps=2) for name in "abcdef"]
    one = attempts(episodes[:3], [[0], [1, 2]])
    other = attempts(episodes[3:], [[2, 1], [0]])
    merged_into(tmp_path / "merged", one.path, other.path)
    assert len(open_store(tmp_path / "merged").parts("steps")) == 4
    assert list(open_dataset(tmp_path / "merged")) == episodes
    verify(open_store(tmp_path / "merged"), deep=True)


def test_the_command_prints_what_was_merged(
    attempt: Any, write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = write([attempt("a"), attempt("b")]), write([attempt("b"), attempt("c", score=0.7)])
    assert run_command(["merge", str(one), str(other), "-o", "merged"]) == 0
    out = capsys.readouterr().out
    assert f"left: {SAME}" in out
    assert out.splitlines()[-1].startswith("merged  3 episodes  6 steps  digest ")
    assert run_command(["merge", str(one), str(other), "--dry-run", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["n_episodes_in"], answer["n_episodes_out"], answer["store"]) == (4, 3, None)
    assert run_command(["merge", str(one), str(other), "-o", "merged"]) == 1
    assert "exists already" in capsys.readouterr().err
    assert run_command(["merge", str(one)]) == 2


@pytest.mark.full
def test_of_three_copies_one_stays(attempt: Any, write: Write, tmp_path: Path) -> None:
    stores = [write([attempt("a", score=score)]) for score in (0.1, 0.2, 0.1)]
    merged = merge(stores, tmp_path / "merged", prefer="first")
    assert left(merged.entry) == {OTHER: (2, 4)}
    (found,) = open_dataset(tmp_path / "merged")
    assert found.metrics == {"episode_return": 0.1}
