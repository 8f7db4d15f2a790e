"""Join the shards of one command into the store that the command makes in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trajkit.curation.merge import all_metrics, columns_of, write_anew
from trajkit.schema import LineageEntry, Manifest
from trajkit.store.engine import connect, scan
from trajkit.store.reader import open_store, verify
from trajkit.store.writer import StoreWriter


def join(
    paths: Sequence[Path],
    goal: Path,
    *,
    lineage: Sequence[LineageEntry],
) -> Manifest:
    """Put the shards of one command together; their files are linked or copied, not written anew.

    A shard is written anew only where another shard has a metric that it has not: each part of a store has
    the columns of all its metrics.

    Args:
        paths: The shards, one or more, without an episode in common.
        goal: The store to write.
        lineage: The lineage of the whole.

    Raises:
        StoreError: A shard is damaged, or `goal` exists or cannot be written.
        DataError: A metric is a float in one shard and a boolean in another, or an episode is in two.
    """
    stores = [open_store(path) for path in paths]
    for store in stores:
        verify(store)
    metrics, first = all_metrics(stores), stores[0].manifest
    with StoreWriter(
        goal,
        kind=first.kind,
        metrics=metrics,
        source=first.source,
        as_of=first.as_of,
        split=first.split,
    ) as writer:
        for store in stores:
            if columns_of(store.manifest.metrics) == columns_of(metrics):
                writer.copy(store, is_linked=True)
            else:
                write_anew(writer, store, metrics)
        return writer.finish(lineage=lineage)


def has_repeated(paths: Sequence[Path]) -> bool:
    """Whether an episode's id is in two of some stores."""
    episodes = [part for path in paths for part in open_store(path).parts("episodes")]
    with connect() as connection:
        ((is_repeated,),) = connection.execute(
            f"SELECT count(*) > count(DISTINCT episode_id) FROM {scan(episodes)}"
        ).fetchall()
    return bool(is_repeated)
