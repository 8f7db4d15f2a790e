"""Keep the episodes of the stores as one narrow table in memory, to list, filter, sort and count them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from trajkit.schema import FeedbackKind, Metric, MetricLevel
from trajkit.store.conditions.names import joined
from trajkit.store.engine import TimeLimit, connect, literal, scan
from trajkit.store.layout import quoted
from trajkit.store.query import explaining
from trajkit.store.reader import Store

FACETS = ("store", "split", "env", "task", "variant", "model", "function", "purpose", "outcome")
"""Columns with few values, which the page filters by."""

SORTED = ("store", "id", "env", "task", "variant", "model", "purpose", "outcome", "started_at")
"""Columns to sort by, besides numbers."""

_NUMBERS = (
    "n_steps",
    "reward",
    "seed",
    "n_invalid",
    "n_masked",
    "n_input_tokens",
    "n_output_tokens",
    "cost_usd",
    "latency_s",
)
_METRIC = "metric."
_TEXTS = ("id", "env", "task", "variant", "model", "mission")
_EPISODES = """
    SELECT {number} AS store, episode_id AS id, {split} AS split, nullif(env_id, '') AS env,
        nullif(task, '') AS task, seed, purpose, {variant} AS variant, {function} AS function, outcome,
        n_steps, total_reward AS reward, n_input_tokens, n_output_tokens, cost_usd,
        strftime(CAST(started_at AS TIMESTAMP), '%Y-%m-%dT%H:%M:%S.%fZ') AS started_at,
        left(nullif(origin->>'$.mission', ''), 400) AS mission, CAST(NULL AS VARCHAR) AS first{metrics}
    FROM episodes
"""
_STEPS = """
    SELECT episode_id AS id, nullif(string_agg(DISTINCT model_name, '+' ORDER BY model_name), '') AS model,
        CASE WHEN count(action_valid) > 0 THEN count(*) FILTER (NOT action_valid) END AS n_invalid,
        count(*) FILTER (loss_weight <= 0) AS n_masked, sum(latency_s) AS latency_s,
        any_value(filename) AS part
    FROM {parts} GROUP BY episode_id
"""
_ORDER = "store, started_at NULLS LAST, id"
_ROWS_AT_ONCE = 8192
LIMIT_S = 30.0
"""Seconds that one search, or one condition on one store, may take, because other requests wait for it."""


class IndexedMetric(NamedTuple):
    """A metric of episodes that some of the stores have."""

    name: str
    """Name of the metric in the stores."""
    is_boolean: bool
    """Whether it is a boolean in all of them."""
    column: str
    """Column of the index: a double, null if it was not measured."""


class Index:
    """The episodes of several stores: the table `rows`, each with a number `n` from 0.

    Args:
        stores: The stores to index.

    Raises:
        StoreError: A store cannot be read.
    """

    def __init__(self, stores: Sequence[Shelved]) -> None:
        self.metrics = _metrics(stores)
        self.numbers = {name: quoted(name) for name in _NUMBERS} | {
            _METRIC + metric.name: metric.column for metric in self.metrics
        }
        """Columns with bounds and sorting: by name, their SQL."""
        self.version = 0
        """Number of changes since the index was made."""
        self._lock = threading.RLock()
        self._connection = connect()
        for one in stores:
            self._add(one)
        self._connection.execute(
            f"CREATE TABLE rows AS SELECT row_number() OVER (ORDER BY {_ORDER}) - 1 AS n, *, "
            f"lower(concat_ws(chr(10), {', '.join(_TEXTS)})) AS haystack FROM raw ORDER BY {_ORDER}"
        )
        self._connection.execute("DROP TABLE raw")
        hidden = {"n", "part", "haystack", *(metric.column for metric in self.metrics)}
        self.shown = [name for name, *_ in self.ask("DESCRIBE rows") if name not in hidden]
        """Columns of a row of the list, without its metrics."""
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep others from reading or changing the index in the block, so that its answers are consistent."""
        with self._lock:
            yield

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT over `rows`; user input must be in it only as literals."""
        with self._lock:
            found: list[tuple[Any, ...]] = self._connection.execute(sql).fetchall()
            return found

    def create_match(self, name: str, condition: str = "false") -> None:
        """Create a table of the numbers `n` of the rows that meet an SQL condition."""
        with self._lock, TimeLimit(LIMIT_S, self._connection, what="the search").counting():
            self.ask(f"CREATE TABLE {name} AS SELECT n FROM rows WHERE {condition}")

    def add_match(self, name: str, store: int, ids: pa.Table) -> None:
        """Add the numbers of some episodes of a store to such a table."""
        with self._given(ids):
            self.ask(
                f"INSERT INTO {name} SELECT n FROM rows SEMI JOIN given ON given.episode_id = rows.id "
                f"WHERE store = {store}"
            )

    def drop(self, name: str) -> None:
        """Drop such a table, if it exists."""
        self.ask(f"DROP TABLE IF EXISTS {name}")

    def add_beginnings(self, store: int, beginnings: pa.Table) -> None:
        """Add the beginnings of episodes of a store: `episode_id`, `mission` and `first`."""
        with self._given(beginnings):
            self.ask(
                "UPDATE rows SET mission = coalesce(rows.mission, given.mission), first = given.first, "
                "haystack = concat_ws(chr(10), haystack, lower(given.mission), lower(given.first)) "
                f"FROM given WHERE store = {store} AND id = given.episode_id"
            )
            self.version += 1

    def close(self) -> None:
        """Close the database and free its memory."""
        self._connection.interrupt()
        with self._lock:
            self._connection.close()

    @contextlib.contextmanager
    def _given(self, table: pa.Table) -> Iterator[None]:
        with self._lock:
            self._connection.register("given", table)
            try:
                yield
            finally:
                self._connection.unregister("given")

    def _add(self, one: Shelved) -> None:
        manifest = one.store.manifest
        own = {metric.name for metric in _of_episodes(manifest.metrics)}
        values = [
            f"CAST({f'metrics.{quoted(metric.name)}' if metric.name in own else 'NULL'} AS DOUBLE)"
            for metric in self.metrics
        ]
        episodes = _EPISODES.format(
            number=one.number,
            split="CAST(NULL AS VARCHAR)" if manifest.split is None else literal(manifest.split),
            variant=joined("variant_names"),
            function=joined("function_names"),
            metrics="".join(
                f", {value} AS {metric.column}" for value, metric in zip(values, self.metrics, strict=True)
            ),
        )
        steps = _STEPS.format(parts=scan(one.store.parts("steps")))
        with explaining(one.store, one.connection, self._connection):
            reader = one.connection.sql(f"FROM ({episodes}) LEFT JOIN ({steps}) USING (id)").to_arrow_reader(
                _ROWS_AT_ONCE
            )
            self._connection.register("incoming", reader)
            verb = "CREATE TABLE raw AS" if one.number == 0 else "INSERT INTO raw BY NAME"
            self._connection.execute(f"{verb} FROM incoming")
            self._connection.unregister("incoming")


def _of_episodes(metrics: Sequence[Metric]) -> list[Metric]:
    return [metric for metric in metrics if metric.level == MetricLevel.EPISODE]


def _metrics(stores: Sequence[Shelved]) -> tuple[IndexedMetric, ...]:
    kinds: dict[str, set[FeedbackKind]] = {}
    for one in stores:
        for metric in _of_episodes(one.store.manifest.metrics):
            kinds.setdefault(metric.name, set()).add(metric.kind)
    return tuple(
        IndexedMetric(name, found == {FeedbackKind.BOOLEAN}, f"m{place}")
        for place, (name, found) in enumerate(sorted(kinds.items()))
    )


@dataclass(frozen=True)
class Shelved:
    """One of the stores of a shelf."""

    number: int
    """Index of the store, from 0."""
    name: str
    """Name on the page, unique among the stores."""
    store: Store
    """The store; its checksums are verified."""
    connection: duckdb.DuckDBPyConnection
    """Connection that reads only this store; each thread uses its own cursor."""
