"""Compare two stores: which episodes one of them lacks, which differ and in which columns, and why."""

from __future__ import annotations

from pathlib import Path

import duckdb

from trajkit.schema import LineageEntry, Model
from trajkit.schema.base import Count, Name
from trajkit.schema.manifest import Sha256
from trajkit.store.engine import connect, interruptible
from trajkit.store.reader import Store, open_store
from trajkit.store.view import columns_of, create_views

_MOST_SHOWN = 3
_KEYS = {"episodes": ("episode_id",), "steps": ("episode_id", "step_index")}


class Episodes(Model):
    """A group of episodes."""

    n: Count
    """Number of them."""
    first: tuple[Name, ...] = ()
    """The first few ids."""


class Difference(Model):
    """The differences between two stores, A and B."""

    a: Path
    """Store A."""
    b: Path
    """Store B."""
    digests: tuple[Sha256, Sha256]
    """The digests of A and B; equal digests mean equal content."""
    n_equal: Count
    """Episodes that both have with the same content."""
    only_a: Episodes
    """Episodes that B lacks."""
    only_b: Episodes
    """Episodes that A lacks."""
    changed: Episodes
    """Episodes that both have with other content."""
    columns: dict[Name, Count]
    """By `TABLE.COLUMN` the number of rows of the changed episodes that differ."""
    n_steps_only_a: Count
    """Steps of the changed episodes that B lacks."""
    n_steps_only_b: Count
    """Steps of the changed episodes that A lacks."""
    metrics_only_a: tuple[Name, ...]
    """Metrics that B lacks, as `LEVEL.NAME`."""
    metrics_only_b: tuple[Name, ...]
    """Metrics that A lacks."""
    why: tuple[LineageEntry, ...]
    """The commands that made B from A; empty if the lineage of B does not name A."""

    @property
    def is_equal(self) -> bool:
        """Whether both have the same content."""
        return self.digests[0] == self.digests[1]


def difference(a: str | Path, b: str | Path) -> Difference:
    """Compare the content of two stores by episode id. Memory does not grow with their texts.

    Args:
        a: The first store, usually the older one.
        b: The second store.

    Raises:
        StoreError: One of them cannot be read.
    """
    stores = open_store(a), open_store(b)
    with connect() as connection, interruptible(connection):
        for store, schema in zip(stores, "ab", strict=True):
            connection.execute(f"CREATE SCHEMA {schema}")
            connection.execute(f"SET schema = '{schema}'")
            create_views(connection, store)
        connection.execute("SET schema = 'main'")
        connection.execute(
            """
            CREATE TABLE found AS
            SELECT coalesce(a.episode_id, b.episode_id) AS episode_id, CASE
                WHEN b.episode_id IS NULL THEN 'only_a' WHEN a.episode_id IS NULL THEN 'only_b'
                WHEN a.content_hash = b.content_hash THEN 'equal' ELSE 'changed' END AS kind
            FROM a.episodes a FULL JOIN b.episodes b USING (episode_id)
            """
        )
        ((n_equal,),) = connection.execute("SELECT count(*) FROM found WHERE kind = 'equal'").fetchall()
        columns: dict[str, int] = {}
        for table in _KEYS:
            columns |= _columns(connection, stores, table)
        n_only = [_n_steps_only(connection, one, other) for one, other in ("ab", "ba")]
        groups = {kind: _episodes(connection, kind) for kind in ("only_a", "only_b", "changed")}
    metrics = [{f"{each.level}.{each.name}" for each in store.manifest.metrics} for store in stores]
    return Difference(
        a=stores[0].path,
        b=stores[1].path,
        digests=(stores[0].manifest.digest, stores[1].manifest.digest),
        n_equal=n_equal,
        columns=dict(sorted(columns.items())),
        n_steps_only_a=n_only[0],
        n_steps_only_b=n_only[1],
        metrics_only_a=tuple(sorted(metrics[0] - metrics[1])),
        metrics_only_b=tuple(sorted(metrics[1] - metrics[0])),
        why=_why(stores[0].manifest.digest, stores[1].manifest.lineage),
        **groups,
    )


def _episodes(connection: duckdb.DuckDBPyConnection, kind: str) -> Episodes:
    ((n, first),) = connection.execute(
        f"SELECT count(*), list(episode_id ORDER BY episode_id)[:{_MOST_SHOWN}] FROM found WHERE kind = ?",
        [kind],
    ).fetchall()
    return Episodes(n=n, first=tuple(first or ()))


def _columns(
    connection: duckdb.DuckDBPyConnection, stores: tuple[Store, Store], table: str
) -> dict[str, int]:
    """Count for each column of the content the rows of changed episodes in which it differs."""
    names = [
        [each.name for each in columns_of(store, table) if each.is_digested and each.name not in _KEYS[table]]
        for store in stores
    ]
    both = [name for name in names[0] if name in names[1]]
    counted = ", ".join(
        f"count(*) FILTER (WHERE to_json(a.{name}) IS DISTINCT FROM to_json(b.{name}))" for name in both
    )
    (counts,) = connection.execute(
        f"SELECT {counted} FROM a.{table} a JOIN b.{table} b USING ({', '.join(_KEYS[table])})"
        " WHERE episode_id IN (SELECT episode_id FROM found WHERE kind = 'changed')"
    ).fetchall()
    return {f"{table}.{name}": n for name, n in zip(both, counts, strict=True) if n}


def _n_steps_only(connection: duckdb.DuckDBPyConnection, one: str, other: str) -> int:
    ((n,),) = connection.execute(
        f"SELECT count(*) FROM {one}.steps x ANTI JOIN {other}.steps y USING (episode_id, step_index)"
        " WHERE episode_id IN (SELECT episode_id FROM found WHERE kind = 'changed')"
    ).fetchall()
    return int(n)


def _why(digest: str, lineage: tuple[LineageEntry, ...]) -> tuple[LineageEntry, ...]:
    """Return the entries since the store of a digest; none if no entry began with it."""
    places = [place for place, entry in enumerate(lineage) if entry.parent_digest == digest]
    return lineage[places[-1] :] if places else ()
