"""Two nodes of a real Ray cluster on this machine; it takes seconds to start, so all its tests are here."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trajkit
from tests.engines import work
from tests.engines.test_engine import mapped
from tests.engines.test_verbs import VERBS, same, stores
from trajkit.commands.sharding import Shards
from trajkit.curation.rows.file import convert
from trajkit.engines.engine import Engine, engine_named
from trajkit.errors import DataError
from trajkit.store.dataset import open_dataset

pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings("default"),  # Ray's own
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with one CPU each, without a dashboard."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            found.second = found.add_node(num_cpus=1)
            ray.init(found.address, logging_level="warning", log_to_driver=False)
            yield found
        finally:
            ray.shutdown()
            found.shutdown()


@pytest.fixture
def engine(cluster: Any) -> Engine:
    found = engine_named("ray", 4)
    assert found is not None
    return found


def test_an_error_names_the_shard_and_the_row(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"double, shard 3 of 3: episode 'e2', row 7") as caught:
        mapped(engine, work.refuse_two, tmp_path)
    assert caught.value.hint == "number it"


def test_ray_starts_a_killed_task_again(engine: Engine, tmp_path: Path) -> None:
    assert mapped(engine, work.die_once, tmp_path) == {0: 0, 1: 2, 2: 4}
    assert (tmp_path / "died").exists()


@pytest.mark.parametrize("verb", VERBS)
def test_a_cluster_makes_the_same_store(engine: Engine, verb: str, tmp_path: Path) -> None:
    for folder, on in (("whole", None), ("cluster", engine)):
        VERBS[verb](tmp_path / folder / "store", on)
    same(stores(tmp_path / "whole"), stores(tmp_path / "cluster"))


def test_a_cluster_makes_the_same_training_file_and_rollout(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sample = open_dataset("sample:babyai").where("purpose <> 'eval'")
    alone = convert(sample, tmp_path / "alone.jsonl", to="openai-sft")
    with Shards(engine, "convert", tmp_path / "work") as shards:
        shared = convert(sample, tmp_path / "shared.jsonl", to="openai-sft", division=shards)
    assert shared.sha256 == alone.sha256
    played = trajkit.rollout("babyai", policy="expert", task="goto", episodes=6, on="ray", workers=3)
    assert played.n_done == 6


def test_a_node_that_leaves_does_no_harm(cluster: Any, engine: Engine, tmp_path: Path) -> None:
    left = []

    def leaving(job: Any, indexes: list[int], workers: int | None) -> Iterator[int]:
        for index in engine.run(job, indexes, workers):
            if not left:  # the others run, or wait for a node
                left.append(cluster.remove_node(cluster.second))
            yield index

    found = mapped(dataclasses.replace(engine, run=leaving), work.wait, tmp_path, n=8)
    assert found == {number: 2 * number for number in range(8)}
    assert left
