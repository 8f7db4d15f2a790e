"""Check whether a model has seen an evaluation world in training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb

from trajkit._core.seeds import Seeds, as_seeds
from trajkit._core.settings import reserved
from trajkit.curation.pair_file import MANIFEST_NAME, open_pairs
from trajkit.curation.preferences.leak import worlds_of_pairs
from trajkit.errors import RequestError, StoreError
from trajkit.schema import Model
from trajkit.schema.base import Name
from trajkit.store.engine import connect, literal, scan
from trajkit.store.reader import open_store


class Seen(Model):
    """Data that a compared model has seen."""

    variant: Name
    """Variant that uses the model."""
    model: Name
    """The model, or the job that trained it."""
    how: Name
    """How the model used the data, such as `learned`."""
    store: Path | None = None
    """The store or the pairs; None if `seeds` lists the worlds."""
    digest: str = ""
    """Digest of the store's content."""
    env: str = ""
    """The environment that was played, where the data is not a store."""
    tasks: tuple[str, ...] = ()
    """Tasks of that environment."""
    seeds: str = ""
    """Seeds of those tasks."""
    doubt: str | None = None
    """Why the data is unknown, in words; the fields from `store` to `seeds` are then empty."""


class Overlap(Model):
    """Worlds of the evaluation that a model has already seen."""

    variant: Name
    """Variant that uses the model."""
    model: Name
    """The model, or the job that trained it."""
    how: Name
    """How the model used the worlds."""
    task: Name
    """Task of the first world."""
    seed: int
    """Seed of the first world: the smallest."""
    n_worlds: int
    """Number of worlds."""
    learned_as: Name | None = None
    """The task under which the model saw these worlds' rooms; None if it saw the worlds themselves."""

    def __str__(self) -> str:
        others = f" and {self.n_worlds - 1:,} more" if self.n_worlds > 1 else ""
        world = f"seed {self.seed} of {self.task}{others}"
        if self.learned_as is not None:
            world = f"the same room in {self.learned_as} as {world}"
        return f"{self.model} ({self.variant}) {self.how} {world}"


class Unsure(Model):
    """A model whose training data is unknown."""

    variant: Name
    """Variant that uses the model."""
    model: Name
    """The model."""
    reason: Name
    """Why the data is unknown, in words."""

    def __str__(self) -> str:
        return f"the training data of {self.model} ({self.variant}) is unknown: {self.reason}"


class Exposure(NamedTuple):
    """The known training data of all compared models."""

    overlaps: tuple[Overlap, ...]
    unsure: tuple[Unsure, ...]


RoomOf = Callable[[str, int], str]
"""Return the hash of the room in which a task and a seed begin; empty if the environment gives none."""


def exposure(
    seen: Sequence[Seen],
    env_id: str,
    tasks: Sequence[str],
    seeds: Seeds,
    room_of: RoomOf = lambda task, seed: "",
) -> Exposure:
    """Find worlds of an evaluation, and their rooms, in the data that the compared models have seen.

    Every episode of a training store counts, learned or not. Rooms are compared under the same seed.

    Args:
        seen: The data behind the models.
        env_id: The environment, as episodes name it.
        tasks: Tasks to play, each on every seed.
        seeds: Seeds to play.
        room_of: Room lookup, called for the seeds that a model has seen under other tasks.
    """
    overlaps: list[Overlap] = []
    unsure: list[Unsure] = []
    for each in seen:
        found = _worlds(each, env_id)
        if found.doubt is not None:
            unsure.append(Unsure(variant=each.variant, model=each.model, reason=found.doubt))
        met = sorted((seed, task) for task, seed in found.worlds if seeds.has(seed))
        same: dict[str | None, list[tuple[int, str]]] = {
            None: [(seed, task) for seed, task in met if task in tasks]
        }
        for seed, task in met:
            for other in tasks:
                if (other, seed) not in found.worlds and _is_same_room(room_of, seed, task, other):
                    same.setdefault(task, []).append((seed, other))
        for learned_as, worlds in same.items():
            if not worlds:
                continue
            seed, task = worlds[0]
            overlaps.append(
                Overlap(
                    variant=each.variant,
                    model=each.model,
                    how=each.how,
                    task=task,
                    seed=seed,
                    n_worlds=len(worlds),
                    learned_as=learned_as,
                )
            )
    return Exposure(tuple(overlaps), tuple(unsure))


def refuse_overlap(found: Exposure) -> None:
    """Refuse to evaluate a model on worlds that it has seen.

    Raises:
        RequestError: There are such worlds; the message names the seed and the job.
    """
    if found.overlaps:
        raise RequestError(
            f"not held out: {'; '.join(map(str, found.overlaps))}",
            hint="choose seeds that no model has seen; --allow-leak plays them, and the result says so",
        )


def is_reserved(env_id: str, tasks: Sequence[str], seeds: Seeds) -> bool:
    """Check whether the project reserves every one of these worlds for evaluation.

    Raises:
        ConfigError: A `trajkit.toml` cannot be used.
    """
    kept = [each for each in reserved() if each.env == env_id]
    return all(
        any(task in each.tasks and each.seeds.has(seed) for each in kept) for task in tasks for seed in seeds
    )


class _Known(NamedTuple):
    """Tasks and seeds that a model has seen, and the reason why the list may be incomplete."""

    worlds: set[tuple[str, int]]
    doubt: str | None = None


def _is_same_room(room_of: RoomOf, seed: int, task: str, other: str) -> bool:
    return bool(room := room_of(task, seed)) and room == room_of(other, seed)


def _worlds(seen: Seen, env_id: str) -> _Known:
    if seen.doubt is not None:
        return _Known(set(), seen.doubt)
    if seen.store is None:
        tasks = seen.tasks if seen.env == env_id else ()
        return _Known({(task, seed) for task in tasks for seed in as_seeds(seen.seeds)})
    try:
        if (seen.store / MANIFEST_NAME).is_file():
            return _of_pairs(seen.store, seen.digest, env_id)
        return _of_store(seen.store, seen.digest, env_id)
    except StoreError as error:
        return _Known(set(), error.message)


def _of_pairs(path: Path, digest: str, env_id: str) -> _Known:
    pairs = open_pairs(path)
    worlds = worlds_of_pairs(pairs)
    doubt = None if worlds else f"the episodes of {path} have no seeds"
    found = {(task, seed) for env, task, seed in worlds if env == env_id and task}
    return _Known(found, doubt) if pairs.manifest.digest == digest else _other(path)


def _of_store(path: Path, digest: str, env_id: str) -> _Known:
    store = open_store(path)
    if store.manifest.digest != digest:
        return _other(path)
    seeded = f"FROM {scan(store.parts('episodes'))} WHERE env_id IS NOT NULL AND seed IS NOT NULL"
    try:
        with connect() as connection:
            ((n_seeded,),) = connection.execute(f"SELECT count(*) {seeded}").fetchall()
            rows = connection.execute(
                f"SELECT DISTINCT task, seed {seeded} AND env_id = {literal(env_id)} AND task IS NOT NULL"
            ).fetchall()
    except duckdb.Error as error:
        return _Known(set(), f"{path} cannot be read: {str(error).splitlines()[0]}")
    n_without = store.manifest.counts.n_episodes - n_seeded
    return _Known(set(rows), f"{n_without:,} episodes of {path} have no seed" if n_without else None)


def _other(path: Path) -> _Known:
    return _Known(set(), f"{path} has changed since the training")
