"""Every verb that derives a store gives the same one in one process and in any number of shards."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trajkit.curation.dedupe import dedupe
from trajkit.curation.leak import drop_leaks
from trajkit.curation.mask import mask
from trajkit.curation.merge import merge
from trajkit.curation.replay import replay
from trajkit.curation.score import score
from trajkit.curation.select import select
from trajkit.curation.split import split
from trajkit.curation.weight import weight
from trajkit.engines import local
from trajkit.engines.engine import Engine
from trajkit.schema import Manifest
from trajkit.store.reader import open_store, verify

SAMPLE = "sample:babyai"
Verb = Callable[[Path, Engine | None], Any]


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half of the sample, with one more metric."""
    folder = tmp_path_factory.mktemp("scored")
    select(SAMPLE, folder / "half", where="seed % 2 = 0")
    (folder / "length.py").write_text("def length(episode):\n    return len(episode.steps)\n")
    score(
        folder / "half",
        folder / "scored",
        scorer=f"{folder / 'length.py'}:length",
        name="length",
        journals=folder,
    )
    return folder / "scored"


def in_this_process(n_shards: int) -> Engine:
    """An engine that cuts the work as one with so many workers does."""
    return Engine("local", n_shards, lambda job, indexes, workers: local.run(job, indexes, 1))


def scored_in(goal: Path, engine: Engine | None) -> Any:
    """The sample with a metric of its steps, some of which have none."""
    return score(
        SAMPLE,
        goal,
        scorer=f"{Path(__file__).with_name('work.py')}:place",
        name="place",
        per="step",
        journals=goal.parent / "journal",
        engine=engine,
    )


VERBS: dict[str, Verb] = {
    "score": scored_in,
    "replay": lambda goal, engine: replay(SAMPLE, goal, fill=True, engine=engine),
    "select": lambda goal, engine: select(SAMPLE, goal, top="50%", control=True, engine=engine),
    "split": lambda goal, engine: split(SAMPLE, goal, ratio={"train": 0.6, "val": 0.4}, engine=engine),
    "dedupe": lambda goal, engine: dedupe(SAMPLE, goal, exact=True, episodes=True, engine=engine),
    "mask": lambda goal, engine: mask(SAMPLE, goal, reasons=["no-op", "loop", "invalid"], engine=engine),
    "weight": lambda goal, engine: weight(SAMPLE, goal, scheme="grpo", by=["task"], engine=engine),
}


def stores(folder: Path) -> dict[str, Manifest]:
    """The stores in a folder by their paths."""
    paths = sorted(path.parent for path in folder.rglob("manifest.json"))
    for path in paths:
        verify(open_store(path))
    return {str(path.relative_to(folder)): open_store(path).manifest for path in paths}


def lineage(manifest: Manifest) -> Any:
    return [entry.model_dump(exclude={"done_at"}) for entry in manifest.lineage]


def same(one: dict[str, Manifest], other: dict[str, Manifest]) -> None:
    assert one.keys() == other.keys()
    assert one
    for name, manifest in one.items():
        found = other[name]
        assert (found.digest, found.counts, found.metrics) == (
            manifest.digest,
            manifest.counts,
            manifest.metrics,
        )
        assert lineage(found) == lineage(manifest)


@pytest.mark.parametrize("n_shards", [3, pytest.param((1, 2, 5), marks=pytest.mark.full)], ids=str)
@pytest.mark.parametrize("verb", VERBS)
def test_a_store_is_the_same_in_any_number_of_shards(
    verb: str, n_shards: int | tuple[int, ...], tmp_path: Path
) -> None:
    VERBS[verb](tmp_path / "whole" / "store", None)
    expected = stores(tmp_path / "whole")
    for n in n_shards if isinstance(n_shards, tuple) else (n_shards,):
        folder = tmp_path / str(n)
        VERBS[verb](folder / "store", in_this_process(n))
        same(expected, stores(folder))
        assert not list(folder.glob(".*"))  # nothing is left of the jobs


def test_merge_and_leak_are_the_same_in_any_number_of_shards(scored: Path, tmp_path: Path) -> None:
    def both(folder: Path, engine: Engine | None) -> dict[str, Manifest]:
        merge([scored, SAMPLE], folder / "merged", prefer="first", engine=engine)
        drop_leaks(SAMPLE, folder / "clean", other=scored, is_train=True, engine=engine)
        return stores(folder)

    expected = both(tmp_path / "whole", None)
    same(expected, both(tmp_path / "shards", in_this_process(3)))


def test_a_job_that_was_stopped_continues(tmp_path: Path) -> None:
    run: list[int] = []

    def stopping(job: Any, indexes: list[int], workers: int | None) -> Iterator[int]:
        for index in local.run(job, indexes, 1):
            run.append(index)
            yield index
            if len(run) == 2:
                raise KeyboardInterrupt

    engine = dataclasses.replace(in_this_process(4), run=stopping)
    with pytest.raises(KeyboardInterrupt):
        VERBS["mask"](tmp_path / "a" / "store", engine)
    assert not (tmp_path / "a" / "store").exists()
    VERBS["mask"](tmp_path / "a" / "store", engine)
    assert sorted(run) == list(range(max(run) + 1))  # no shard was written twice
    VERBS["mask"](tmp_path / "b" / "store", None)
    same(stores(tmp_path / "a"), stores(tmp_path / "b"))
