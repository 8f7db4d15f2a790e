"""Write the tables of stores as Parquet files of a repository."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from trajkit.errors import DataError
from trajkit.publishing.files.shards import SHARD_BYTES, Shard, ShardWriter, batches_of, named
from trajkit.publishing.files.wide import MOVED_SCHEMA, slimmed
from trajkit.publishing.record import PULL, PublishedPart, PublishedStore, public_facts
from trajkit.schema import Manifest, Metric, Part
from trajkit.store.layout import CONTENT_HASH, TABLES
from trajkit.store.reader import Store
from trajkit.store.writing.part import arrow_schema

MOVED_FOLDER = "moved"
"""Folder of values that were too wide."""


class Written(NamedTuple):
    """The files of one store."""

    store: PublishedStore
    """Description of the store for the record."""
    shards: tuple[Shard, ...]
    """Every file, including those of moved values."""
    n_moved: Mapping[str, tuple[int, int]]
    """Numbers of rows with moved values, and of those values, by table."""


def shared_metrics(stores: Mapping[str, Store]) -> tuple[Metric, ...]:
    """Return the metrics that any of the stores has a column for; all splits get the same columns.

    Raises:
        DataError: A metric is a number in one split and a boolean in another.
    """
    return _union({split: store.manifest.metrics for split, store in stores.items()})


def all_metrics(stores: Sequence[PublishedStore]) -> tuple[Metric, ...]:
    """Return the metrics that any of the published stores has a column for."""
    return _union({store.split: store.metrics for store in stores})


def _union(metrics: Mapping[str, Sequence[Metric]]) -> tuple[Metric, ...]:
    found: dict[tuple[str, str], Metric] = {}
    for split, listed in metrics.items():
        for metric in listed:
            other = found.setdefault((metric.level, metric.name), metric)
            if other.kind != metric.kind:
                raise DataError(
                    f"metric {metric.name!r} is {metric.kind} in {split} and {other.kind} in another split",
                    hint="publish them as two repositories",
                )
    return tuple(sorted(found.values(), key=lambda metric: (metric.level, metric.name)))


def write_tables(
    store: Store,
    split: str,
    metrics: Sequence[Metric],
    folder: Path,
    *,
    on_rows: Callable[[int], None] = lambda n_rows: None,
) -> Written:
    """Write a store's tables, streamed: memory holds a row group.

    Args:
        store: The store; its checksums have been verified.
        split: Name of the split.
        metrics: Metrics that get a column.
        folder: Folder that gets a folder for each table.
        on_rows: Called with the number of newly written rows.
    """
    shards: dict[str, list[Shard]] = {}
    files: dict[str, list[str]] = {table: [] for table in TABLES}
    n_moved: dict[str, tuple[int, int]] = {}
    groups = _groups(store.manifest.parts)
    moved_folder = folder / MOVED_FOLDER
    moved_folder.mkdir(parents=True, exist_ok=True)
    with ShardWriter(moved_folder / f".{split}", MOVED_SCHEMA) as moved:
        for table in TABLES:
            extra = (CONTENT_HASH,) if table == "episodes" else ()
            schema = arrow_schema(table, metrics, extra)
            (folder / table).mkdir(parents=True, exist_ok=True)
            written = []
            for number, names in enumerate(groups):
                paths = [path for name in names if (path := store.path / table / name).is_file()]
                with ShardWriter(folder / table / f".{split}-{number}", schema) as writer:
                    for batch in batches_of(paths):
                        slim = slimmed(table, batch)
                        writer.add(slim.batch)
                        if slim.n_rows:
                            n_rows, n_values = n_moved.get(table, (0, 0))
                            n_moved[table] = (n_rows + slim.n_rows, n_values + slim.moved.num_rows)
                            for piece in slim.moved.to_batches():
                                moved.add(piece)
                        on_rows(batch.num_rows)
                written.append(Shard(writer.path, writer.n_rows))
            for shard in written:
                if not shard.n_rows:  # so that indices match between tables
                    pq.write_table(schema.empty_table(), shard.path)
            shards[table] = named(folder / table, split, written)
            if any(shard.n_rows for shard in written):
                files[table] = [f"{table}/{shard.path.name}" for shard in shards[table]]
            else:
                for shard in shards[table]:
                    shard.path.unlink()
                shards[table] = []
    if moved.n_rows:
        shards[MOVED_FOLDER] = named(moved_folder, split, [Shard(moved.path, moved.n_rows)])
        files[MOVED_FOLDER] = [f"{MOVED_FOLDER}/{shard.path.name}" for shard in shards[MOVED_FOLDER]]
    parts = tuple(
        _part(store.manifest.parts, number, name) for number, names in enumerate(groups) for name in names
    )
    published = _published(
        store.manifest, split, parts, {name: tuple(paths) for name, paths in files.items() if paths}
    )
    return Written(published, tuple(shard for each in shards.values() for shard in each), n_moved)


def _groups(parts: Sequence[Part]) -> list[list[str]]:
    """Group file names of parts to combine up to `SHARD_BYTES`. Parts of a name are of the same episodes."""
    sizes: dict[str, int] = {}
    for part in parts:
        name = part.path.rpartition("/")[2]
        sizes[name] = sizes.get(name, 0) + part.n_bytes
    groups: list[list[str]] = []
    size = 0
    for name in sorted(sizes):
        if not groups or size + sizes[name] > SHARD_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += sizes[name]
    return groups


def _part(parts: Sequence[Part], number: int, name: str) -> PublishedPart:
    rows = {part.path: part.n_rows for part in parts}
    counts = {f"n_{table}": rows.get(f"{table}/{name}", 0) for table in TABLES}
    return PublishedPart(file=number, **counts)


def _published(
    manifest: Manifest, split: str, parts: tuple[PublishedPart, ...], files: dict[str, tuple[str, ...]]
) -> PublishedStore:
    return PublishedStore(
        split=split,
        store_version=manifest.format_version,
        kind=next((e.verb for e in reversed(manifest.lineage) if e.verb != PULL), manifest.kind),
        digest=manifest.digest,
        counts=manifest.counts,
        metrics=manifest.metrics,
        side=manifest.split,
        as_of=manifest.as_of,
        files=files,
        parts=parts,
        **public_facts(manifest),
    )
