"""Builders of stores in any layout, for what chooses among episodes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.store.written import write_once
from trajkit.schema import Episode, Manifest, Transition, message
from trajkit.store.engine import connect
from trajkit.store.reader import Store, open_store
from trajkit.store.view import create_views
from trajkit.store.writer import StoreWriter


def make_attempt(
    name: str,
    *,
    score: float | None = 0.5,
    n_steps: int = 2,
    prompts: Sequence[str] | None = None,
    answers: Sequence[str] | None = None,
    variant: str | None = None,
    step: dict[str, Any] | None = None,
    **fields: Any,
) -> Episode:
    """An episode of `goto`, seed 1, whose prompts name it unless they are given."""
    said = prompts or [f"{name} turn {index}" for index in range(n_steps)]
    replies = answers or ["go forward"] * len(said)
    steps = tuple(
        Transition(
            step_index=index,
            messages=(message("user", prompt),),
            completion=message("assistant", reply),
            action=reply,
            variant_name=variant,
            **(step or {}),
        )
        for index, (prompt, reply) in enumerate(zip(said, replies, strict=True))
    )
    default: dict[str, Any] = {"source": "test", "env_id": "world", "task": "goto", "seed": 1}
    metrics = {} if score is None else {"episode_return": score}
    return Episode(
        episode_id=name, steps=steps, **{**default, "metrics": metrics, "outcome": "success", **fields}
    )


@pytest.fixture(scope="session")
def attempt() -> Callable[..., Episode]:
    return make_attempt


@pytest.fixture
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Store]:
    """Write episodes as a store, in one part or, each with those at the positions given, in several."""
    folder = tmp_path_factory.mktemp("stores")
    numbers = itertools.count()

    def write(episodes: Sequence[Episode], parts: Sequence[Sequence[int]] | None = None) -> Store:
        whole = folder / f"store-{next(numbers)}"
        write_once(whole, episodes)
        return open_store(whole) if parts is None else laid_out(open_store(whole), episodes, parts)

    def laid_out(store: Store, episodes: Sequence[Episode], parts: Sequence[Sequence[int]]) -> Store:
        goal = store.path.with_name(f"{store.path.name}-parts")
        with (
            connect() as connection,
            StoreWriter(goal, kind="test", metrics=store.manifest.metrics) as writer,
        ):
            create_views(connection, store)
            for part in parts:
                ids = [episodes[position].episode_id for position in part]
                connection.execute(
                    "CREATE OR REPLACE TEMP TABLE mine AS SELECT unnest(?) AS episode_id", [ids]
                )
                names = {
                    table: f"(SELECT * FROM {table} SEMI JOIN mine USING (episode_id))"
                    for table in ("episodes", "steps", "feedback")
                }
                writer.add(connection, **names)
            writer.finish()
        return open_store(goal)

    return write


@pytest.fixture(scope="session")
def ids_of() -> Callable[[Path], list[str]]:
    """The episodes of a store, sorted."""

    def read(path: Path) -> list[str]:
        parts = [pq.ParquetFile(part).read(["episode_id"]) for part in open_store(path).parts("episodes")]
        return sorted(row["episode_id"] for part in parts for row in part.to_pylist())

    return read


@pytest.fixture(scope="session")
def is_whole() -> Callable[[Manifest], bool]:
    """Whether the last verb's tally adds up."""

    def check(manifest: Manifest) -> bool:
        entry = manifest.lineage[-1]
        n_left = sum(left.n_episodes for left in entry.left)
        n_steps_left = sum(left.n_steps for left in entry.left)
        return (
            entry.n_episodes_out == manifest.counts.n_episodes == entry.n_episodes_in - n_left
            and entry.n_steps_out == manifest.counts.n_steps == entry.n_steps_in - n_steps_left
        )

    return check


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Iterable[Episode]], Path]:
    """Write episodes as a store of a new name."""
    numbers = itertools.count()

    def write_one(episodes: Iterable[Episode]) -> Path:
        goal = tmp_path / f"store-{next(numbers)}"
        write_once(goal, episodes)
        return goal

    return write_one
