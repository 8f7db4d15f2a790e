"""Put stores together: those of an export and a later one, of different origin, or shards of one command."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
from pydantic import JsonValue

import trajkit
from trajkit._core.files import refuse_existing
from trajkit.curation.derive import Written, deriving, reading
from trajkit.engines.engine import Engine
from trajkit.errors import DataError, RequestError, StoreError
from trajkit.schema import FeedbackKind, Left, LineageEntry, Manifest, Metric, MetricLevel
from trajkit.schema.base import JsonObject
from trajkit.store.engine import connect, scan
from trajkit.store.layout import LEVELS, quoted
from trajkit.store.reader import Store, open_store, verify
from trajkit.store.writer import StoreWriter

_MEMORY_LIMIT = "1GB"

SAME = "also in another of the stores, the same"
"""Reason for leaving out a second copy of an episode."""

OTHER = "in another of the stores too, which is preferred"
"""Reason for leaving out an episode that another store has with different content."""
_NOTHING = pa.table({"episode_id": pa.array([], pa.string())})
_WORDS = {
    FeedbackKind.FLOAT: "a number",
    FeedbackKind.BOOLEAN: "a boolean",
    "max": "better when high",
    "min": "better when low",
}
_SQL_TYPES = {FeedbackKind.FLOAT: "DOUBLE", FeedbackKind.BOOLEAN: "BOOLEAN"}


class Prefer(StrEnum):
    """Which store's version of an episode stays when two stores have it with different content."""

    FIRST = "first"
    """The version of the store named first."""
    LAST = "last"
    """The version of the store named last."""


class Merged(NamedTuple):
    """Result of a merge."""

    entry: LineageEntry
    manifest: Manifest | None
    """Manifest of the new store; None without a goal."""


def merge(
    paths: Sequence[str | Path],
    goal: Path | None,
    *,
    prefer: Prefer | str | None = None,
    engine: Engine | None = None,
) -> Merged:
    """Put the episodes of several stores into one. Memory does not grow with them.

    An episode that two stores have with the same content is kept once, and the copy is counted. The digest
    depends on the content alone: merged shards of an export have the digest of the whole export.

    Args:
        paths: The stores, two or more; folders, or `sample:NAME`.
        goal: The store to write; None only counts.
        prefer: Which version of an episode stays when two stores differ in it; None for an error.
        engine: Writes the parts that change; None for this process.

    Raises:
        RequestError: Fewer than two stores, or one twice.
        StoreError: A store is damaged, they are of different versions, or the goal exists.
        DataError: A metric is a float in one store and a boolean in another, or larger is better in one and
            smaller in another; or an episode differs between two stores and `prefer` is None.
    """
    try:
        wanted = None if prefer is None else Prefer(prefer)
    except ValueError:
        raise RequestError(f"--prefer {prefer!r} is neither 'first' nor 'last'") from None
    if goal is not None:
        refuse_existing(goal)
    stores = _open(paths)
    metrics = _all_metrics(stores)
    names = ", ".join(str(store.path) for store in stores)
    with connect(memory_limit=_MEMORY_LIMIT) as connection, reading(connection, names):
        left = _settle(connection, stores, wanted)
        entry = _entry(connection, stores, wanted, left)
        if goal is None:
            return Merged(entry, None)
        return Merged(entry, _write(connection, stores, goal, metrics, entry, engine))


def _open(paths: Sequence[str | Path]) -> list[Store]:
    stores = [open_store(path) for path in paths]
    if len(stores) < 2:
        raise RequestError(f"merge needs two or more stores, not {len(stores)}")
    for number, store in enumerate(stores):
        if store.path in [other.path for other in stores[:number]]:
            raise RequestError(f"{store.path} is given twice")
        verify(store)
    versions = {store.manifest.format_version: store for store in stores}
    if len(versions) > 1:
        (first, one), (second, other) = list(versions.items())[:2]
        raise StoreError(
            f"{one.path} is of store version {first} and {other.path} of version {second}",
            hint="make both with the same trajkit",
        )
    return stores


def _settle(
    connection: duckdb.DuckDBPyConnection, stores: Sequence[Store], prefer: Prefer | None
) -> list[Left]:
    """Create a table `gone` of the copies of episodes that are left out, by store."""
    held = " UNION ALL ".join(
        f"SELECT {number} AS store, episode_id, content_hash, n_steps FROM {scan(store.parts('episodes'))}"
        for number, store in enumerate(stores)
    )
    keeps = "max" if prefer == Prefer.LAST else "min"
    connection.execute(
        f"""
        CREATE TABLE gone AS
        WITH held AS ({held}), several AS (
            SELECT episode_id, {keeps}(store) AS kept, min(content_hash) <> max(content_hash) AS is_other
            FROM held GROUP BY episode_id HAVING count(*) > 1
        )
        SELECT store, episode_id, n_steps, is_other, kept FROM held JOIN several USING (episode_id)
        WHERE store <> kept
        """
    )
    differing = connection.execute(
        "SELECT episode_id, store, kept, count(*) OVER () FROM gone WHERE is_other ORDER BY 1 LIMIT 1"
    ).fetchall()
    if differing and prefer is None:
        episode_id, one, other, n = differing[0]
        more = f", and so are {n - 1:,} more" if n > 1 else ""
        raise DataError(
            f"episode {episode_id} is in {stores[other].path} and in {stores[one].path}"
            f" with different content{more}",
            hint="--prefer last takes the one in the store named last, such as a later export",
        )
    counts = connection.execute(
        "SELECT is_other, count(*), sum(n_steps)::BIGINT FROM gone GROUP BY is_other ORDER BY is_other"
    ).fetchall()
    return [
        Left(reason=OTHER if is_other else SAME, n_episodes=n, n_steps=n_steps)
        for is_other, n, n_steps in counts
    ]


def _entry(
    connection: duckdb.DuckDBPyConnection,
    stores: Sequence[Store],
    prefer: Prefer | None,
    left: Sequence[Left],
) -> LineageEntry:
    counts = [store.manifest.counts for store in stores]
    n_episodes, n_steps = sum(c.n_episodes for c in counts), sum(c.n_steps for c in counts)
    gone = dict(connection.execute("SELECT store, count(*) FROM gone GROUP BY store").fetchall())
    n_common = len(_common_history(stores))
    parents: list[JsonValue] = [
        {
            "digest": store.manifest.digest,
            "n_episodes": store.manifest.counts.n_episodes - gone.get(number, 0),
            "lineage": [each.model_dump(mode="json") for each in store.manifest.lineage[n_common:]],
        }
        for number, store in enumerate(stores)
    ]
    arguments: JsonObject = {"stores": parents} | ({"prefer": prefer.value} if prefer else {})
    return LineageEntry(
        verb="merge",
        arguments=arguments,
        n_episodes_in=n_episodes,
        n_episodes_out=n_episodes - sum(each.n_episodes for each in left),
        n_steps_in=n_steps,
        n_steps_out=n_steps - sum(each.n_steps for each in left),
        left=tuple(left),
        done_at=datetime.now(UTC),
        trajkit_version=trajkit.__version__,
    )


def _write(
    connection: duckdb.DuckDBPyConnection,
    stores: Sequence[Store],
    goal: Path,
    metrics: tuple[Metric, ...],
    entry: LineageEntry,
    engine: Engine | None,
) -> Manifest:
    splits = {store.manifest.split for store in stores}
    with StoreWriter(
        goal,
        kind="merge",
        metrics=metrics,
        source=_source(stores),
        as_of=_as_of(stores),
        split=splits.pop() if len(splits) == 1 else None,
    ) as writer:
        for number, store in enumerate(stores):
            ids = f"SELECT episode_id FROM gone WHERE store = {number}"
            _put(writer, store, metrics, connection.sql(ids).to_arrow_table(), engine=engine, goal=goal)
        return writer.finish(lineage=[*_common_history(stores), entry], connection=connection)


def _common_history(stores: Sequence[Store]) -> list[LineageEntry]:
    """Return the lineage that all stores share; the merge's entry contains the rest."""
    histories = zip(*(store.manifest.lineage for store in stores), strict=False)
    shared = itertools.takewhile(lambda entries: all(each == entries[0] for each in entries), histories)
    return [entries[0] for entries in shared]


def _source(stores: Sequence[Store]) -> JsonObject:
    found: list[JsonObject] = []
    for store in stores:
        if store.manifest.source not in found:
            found.append(store.manifest.source)
    return found[0] if len(found) == 1 else {"kind": "merge", "sources": list(found)}


def _as_of(stores: Sequence[Store]) -> datetime | None:
    """Return the time of the oldest store, leaving out stores that another one continues with `--after`."""
    continued = set()
    for store in stores:
        for entry in store.manifest.lineage:
            if isinstance(earlier := entry.arguments.get("after"), dict):
                continued.add(earlier.get("digest"))
    times = [store.manifest.as_of for store in stores if store.manifest.digest not in continued]
    return None if None in times else min(time for time in times if time is not None)


def _put(
    writer: StoreWriter,
    store: Store,
    metrics: Sequence[Metric],
    gone: pa.Table = _NOTHING,
    *,
    engine: Engine | None = None,
    goal: Path | None = None,
    is_linked: bool = False,
) -> None:
    """Copy the files of a store; if episodes are left out or a metric has no column, rewrite them."""
    own, every = (
        {(each.level, each.name, each.kind) for each in of} for of in (store.manifest.metrics, metrics)
    )
    if not gone.num_rows and own == every:
        writer.copy(store, is_linked=is_linked)
        return
    with deriving(store.path, memory_limit=_MEMORY_LIMIT, engine=engine, goal=goal) as derivation:
        connection = derivation.connection
        connection.register("gone", gone)
        stay = "SELECT episode_id FROM episodes ANTI JOIN gone USING (episode_id)"
        connection.execute(f"CREATE TEMP TABLE kept AS {stay}")
        for table in ("episodes", "steps"):
            select = f"SELECT {_with_metrics(table, store, metrics)} FROM {table}"
            connection.execute(f"CREATE TEMP VIEW merged_{table} AS {select}")
        derivation.add(writer, Written("merge", "merged_episodes", "merged_steps", metrics), "kept")


def _all_metrics(stores: Sequence[Store]) -> tuple[Metric, ...]:
    """Return the metrics of all stores, with whatever is known about each in any store."""
    found: dict[tuple[MetricLevel, str], tuple[Metric, Store]] = {}
    for store in stores:
        for metric in store.manifest.metrics:
            known, of = found.setdefault((metric.level, metric.name), (metric, store))
            for what in ("kind", "optimize"):
                one, other = getattr(known, what), getattr(metric, what)
                if one != other and None not in (one, other):
                    raise DataError(
                        f"metric {metric.name!r} on {metric.level}s is {_WORDS[one]} in {of.path}"
                        f" and {_WORDS[other]} in {store.path}",
                        hint="a store has one meaning for a metric; export them with other names or times",
                    )
            if known.optimize is None and metric.optimize is not None:
                found[metric.level, metric.name] = (metric, store)
    return tuple(metric for metric, _ in found.values())


def _with_metrics(table: str, store: Store, metrics: Sequence[Metric]) -> str:
    """Return SQL of the columns of a store's table, with null for each metric that only other stores have."""
    level = LEVELS[table]
    own = {metric.name for metric in store.manifest.metrics if metric.level == level}
    fields = []
    for metric in metrics:
        if metric.level == level:
            name, nothing = quoted(metric.name), f"CAST(NULL AS {_SQL_TYPES[metric.kind]})"
            fields.append(f"{name} := {f'metrics.{name}' if metric.name in own else nothing}")
    if not fields:
        return "*"
    struct = f"struct_pack({', '.join(fields)}) AS metrics"
    return f"* REPLACE ({struct})" if own else f"*, {struct}"


def join(paths: Sequence[Path], goal: Path, *, lineage: Sequence[LineageEntry]) -> Manifest:
    """Put the shards of one command together; their files are linked or copied, not rewritten.

    A shard is rewritten only if another shard has a metric that it lacks: each part of a store has
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
    metrics, first = _all_metrics(stores), stores[0].manifest
    with StoreWriter(
        goal,
        kind=first.kind,
        metrics=metrics,
        source=first.source,
        as_of=first.as_of,
        split=first.split,
    ) as writer:
        for store in stores:
            _put(writer, store, metrics, is_linked=True)
        return writer.finish(lineage=lineage)


def has_repeated(paths: Sequence[Path]) -> bool:
    """Whether an episode's id is in two of some stores."""
    episodes = [part for path in paths for part in open_store(path).parts("episodes")]
    with connect() as connection:
        ((is_repeated,),) = connection.execute(
            f"SELECT count(*) > count(DISTINCT episode_id) FROM {scan(episodes)}"
        ).fetchall()
    return bool(is_repeated)
