"""Restore a published store from the files of a repository: part by part, and with the same digest."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import trajkit
from trajkit.errors import DataError
from trajkit.publishing.files.shards import RowReader
from trajkit.publishing.files.tables import MOVED_FOLDER
from trajkit.publishing.files.wide import with_moved
from trajkit.publishing.record import PULL, PublishedStore
from trajkit.schema import LineageEntry, Manifest
from trajkit.schema.base import JsonObject
from trajkit.store.engine import connect, first_line, interruptible
from trajkit.store.layout import TABLES, columns, metrics_type, quoted
from trajkit.store.writer import StoreWriter

_MEMORY = "1GB"


def restore(
    folder: Path, published: PublishedStore, goal: Path, *, where: JsonObject | None = None
) -> Manifest:
    """Write a store from files of a repository, with the digest that was published.

    Args:
        folder: Folder of the files.
        published: Description of the store in the record.
        goal: Path of the new store.
        where: Origin of the files, for the lineage; None for no entry.

    Raises:
        StoreError: The digest differs, or `goal` exists or cannot be written.
        DataError: The files are not those of a store.
    """
    lineage = list(published.lineage)
    if where is not None:
        lineage.append(_pulled(published, where))
    try:
        with StoreWriter(
            goal,
            kind=published.kind if where is None else PULL,
            metrics=published.metrics,
            source=published.source,
            as_of=published.as_of,
            split=published.side,
        ) as writer:
            for rows in _rows_by_part(folder, published):
                _add_part(writer, folder, published, rows)
            return writer.finish(lineage=lineage, expected=published.digest)
    except (duckdb.Error, pa.ArrowException, OSError, LookupError, TypeError) as error:
        raise DataError(
            f"the files of the split {published.split} are not those of a store: {first_line(error)}",
            hint="have it published again",
        ) from error


def _rows_by_part(folder: Path, published: PublishedStore) -> Iterator[dict[str, pa.Table | None]]:
    """Yield the rows of each part by table, None if a table has no file; parts of one file are read on."""
    paths = {table: published.files.get(table, ()) for table in TABLES}
    for number, parts in itertools.groupby(published.parts, key=lambda part: part.file):
        with contextlib.ExitStack() as opened:
            readers = {
                table: opened.enter_context(contextlib.closing(RowReader(folder / names[number])))
                for table, names in paths.items()
                if number < len(names)
            }
            for part in parts:
                counts = {"episodes": part.n_episodes, "steps": part.n_steps, "feedback": part.n_feedback}
                yield {
                    table: readers[table].take(n) if table in readers else None for table, n in counts.items()
                }


def _add_part(
    writer: StoreWriter, folder: Path, published: PublishedStore, rows: Mapping[str, pa.Table | None]
) -> None:
    with connect(memory_limit=_MEMORY) as connection, interruptible(connection):
        moved = _moved(folder, published)
        relations: dict[str, str] = {}
        for table, found in rows.items():
            made = columns(table, published.metrics)
            if found is None:
                names = ", ".join(f'CAST(NULL AS {column.sql_type}) AS "{column.name}"' for column in made)
                relations[table] = f"(SELECT {names} WHERE false)"
                continue
            connection.register(f"read_{table}", found)
            select = _with_own_metrics(table, f"(SELECT * FROM read_{table})", published)
            relations[table] = with_moved(table, select, made, moved) if moved["files"] else select
        writer.add(connection, **relations)


def _with_own_metrics(table: str, select: str, published: PublishedStore) -> str:
    """Remove the metrics that only other splits have."""
    level = {"episodes": "episode", "steps": "inference"}.get(table)
    kind = metrics_type(published.metrics, level) if level else None  # type: ignore[arg-type]
    if kind is None:
        return select
    names = sorted(metric.name for metric in published.metrics if metric.level == level)
    fields = ", ".join(f"{quoted(name)} := metrics.{quoted(name)}" for name in names)
    return (
        f"(SELECT * REPLACE (CASE WHEN metrics IS NULL THEN NULL ELSE struct_pack({fields}) END AS metrics)"
        f" FROM {select})"
    )


def _moved(folder: Path, published: PublishedStore) -> dict[str, Any]:
    files = [folder / path for path in published.files.get(MOVED_FOLDER, ())]
    names: set[str] = set()
    for path in files:
        for batch in pq.ParquetFile(path).iter_batches(columns=["column"]):
            names.update(map(str, batch.column("column").unique().to_pylist()))
    return {"files": files, "columns": names}


def _pulled(published: PublishedStore, where: JsonObject) -> LineageEntry:
    counts = published.counts
    return LineageEntry(
        verb=PULL,
        arguments=where,
        parent_digest=published.digest,
        n_episodes_in=counts.n_episodes,
        n_episodes_out=counts.n_episodes,
        n_steps_in=counts.n_steps,
        n_steps_out=counts.n_steps,
        done_at=datetime.now(UTC),
        trajkit_version=trajkit.__version__,
    )
