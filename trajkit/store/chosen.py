"""Read the episodes that a dataset's verbs choose, in their order, a few thousand steps at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa

import trajkit
from trajkit._core.process.closing import Closing
from trajkit.errors import NothingMatched, QueryError
from trajkit.schema import Episode, Left, LineageEntry, Manifest
from trajkit.store.arrow import Row, episode_of
from trajkit.store.conditions.expression import Expression, parse, require_boolean
from trajkit.store.conditions.nameable import column_name
from trajkit.store.conditions.names import names_of
from trajkit.store.engine import connect, interruptible
from trajkit.store.layout import TABLES, quoted
from trajkit.store.query import explaining, fenced
from trajkit.store.reader import Store
from trajkit.store.view import create_empty, create_views, full_steps, narrow_views, parts_between, rows_of
from trajkit.store.writer import StoreWriter

_STEPS_PER_BATCH = 4096
_STEPS_PER_PART = 50_000
_ROWS_PER_BATCH = 256
_KEYS = {"steps": ("step_index",), "feedback": ("feedback_id",)}


class Verb(NamedTuple):
    """One operation on a dataset."""

    name: str
    """`where`, `order_by` or `limit`."""
    argument: str
    """The expression, or the number."""
    is_descending: bool = False
    """For `order_by`: largest first."""

    def __str__(self) -> str:
        more = ", descending=True" if self.is_descending else ""
        argument = self.argument if self.name == "limit" else repr(self.argument)
        return f"{self.name}({argument}{more})"

    @property
    def reason(self) -> str:
        """The reason recorded for an episode that this verb leaves out."""
        return f"not ({self.argument})" if self.name == "where" else f"after the first {self.argument}"


class Batch(NamedTuple):
    """Consecutive episodes in the dataset's order."""

    first: int
    """Position of the first of them."""
    last: int
    """Position of the last of them."""
    lowest_id: str
    """Smallest of their ids, which lets DuckDB skip row groups."""
    highest_id: str
    """Largest of their ids."""


def try_verb(store: Store, verb: Verb) -> None:
    """Bind a verb's expression to empty tables, so that a misspelt name fails at once and no step is read.

    Raises:
        QueryError: It is not one expression, names no column, or as a condition is not boolean.
    """
    if verb.name == "limit":
        return
    with connect() as connection, explaining(store, connection):
        create_views(connection, store)
        (expression,), wide = _parsed(store, connection, (verb,))
        connection.execute("CREATE SCHEMA empty")
        connection.execute("SET schema = 'empty'")
        create_empty(connection, store)
        if verb.name == "where":
            require_boolean(expression, connection, f"({wide})")
        else:
            connection.sql(f"SELECT {expression.sql} FROM ({wide})")


class Chosen(Closing):
    """The episodes that a dataset's verbs choose, computed once; the connection behind it is fenced.

    Args:
        store: The store.
        verbs: The verbs.

    Raises:
        StoreError: A part is missing or changed.
        QueryError: Evaluating an expression fails.
    """

    def __init__(self, store: Store, verbs: tuple[Verb, ...]) -> None:
        self._store = store
        self._verbs = verbs
        self._done_at = datetime.now(UTC)
        self._connection = fenced(store)
        self._counts = [(store.manifest.counts.n_episodes, store.manifest.counts.n_steps)]
        with explaining(store, self._connection):
            self._choose()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @property
    def n_episodes(self) -> int:
        """Number of chosen episodes."""
        return self._counts[-1][0]

    @property
    def n_steps(self) -> int:
        """Number of their steps."""
        return self._counts[-1][1]

    def lineage(self) -> tuple[LineageEntry, ...]:
        """Return an entry per choosing verb, with the number of episodes that it left out."""
        entries: list[LineageEntry] = []
        choosing = [verb for verb in self._verbs if verb.name != "order_by"]
        for verb, (before, after) in zip(choosing, itertools.pairwise(self._counts), strict=True):
            gone = Left(reason=verb.reason, n_episodes=before[0] - after[0], n_steps=before[1] - after[1])
            entries.append(
                LineageEntry(
                    verb=verb.name,
                    arguments={"expression" if verb.name == "where" else "n": verb.argument},
                    parent_digest=None if entries else self._store.manifest.digest,
                    n_episodes_in=before[0],
                    n_episodes_out=after[0],
                    n_steps_in=before[1],
                    n_steps_out=after[1],
                    left=(gone,) if gone.n_episodes or gone.n_steps else (),
                    done_at=self._done_at,
                    trajkit_version=trajkit.__version__,
                )
            )
        return tuple(entries)

    def reader(self, table: str) -> pa.RecordBatchReader:
        """Stream the rows of a table; the connection lives as long as the reader."""
        nothing = self._connection.sql(f"SELECT * FROM {table} LIMIT 0").to_arrow_reader(1)
        schema = nothing.schema
        nothing.close()
        rows = (each for batch in self._batches() for each in self._rows(table, batch))
        return pa.RecordBatchReader.from_batches(schema, rows)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of the chosen episodes, in order and at once."""
        with interruptible(self._connection):
            table: pa.Table = self._connection.sql(
                f"SELECT {', '.join(map(quoted, names))} FROM episodes JOIN chosen USING (episode_id) "
                "ORDER BY position"
            ).to_arrow_table()
        return table

    def episodes(self) -> Iterator[Episode]:
        """Yield the episodes as objects, in order."""
        for batch in self._batches():
            yield from self._episodes_of(batch)

    def episode(self, text: str) -> Episode:
        """Return the episode with this id, with an id that begins so, or at this position.

        Raises:
            NothingMatched: There is no such episode.
            QueryError: Several ids begin so.
        """
        position, episode_id = self._find(text)
        (episode,) = self._episodes_of(Batch(position, position, episode_id, episode_id))
        return episode

    def save(self, goal: Path, *, kind: str) -> Manifest:
        """Write the episodes as a new store, a bounded number of steps at a time."""
        manifest = self._store.manifest
        lineage = (*manifest.lineage, *self.lineage())
        # No SQL of the user runs below, and the fence would not allow writing the parts.
        with connect() as connection:
            create_views(connection, self._store)
            connection.register("ids", self._connection.sql("SELECT * FROM chosen").to_arrow_table())
            connection.execute(
                f"CREATE TABLE chosen AS SELECT episode_id, n_before // {_STEPS_PER_PART} AS part FROM ids"
            )
            parts = connection.execute(
                "SELECT part, min(episode_id), max(episode_id) FROM chosen GROUP BY part ORDER BY part"
            ).fetchall()
            with StoreWriter(
                goal,
                kind=kind,
                metrics=manifest.metrics,
                source=manifest.source,
                as_of=manifest.as_of,
                split=manifest.split,
            ) as writer:
                for part, lowest, highest in parts:
                    with explaining(self._store, connection):
                        narrow_views(connection, self._store, lowest, highest)
                    mine = f"SEMI JOIN (SELECT episode_id FROM chosen WHERE part = {part}) USING (episode_id)"
                    writer.add(connection, **{table: f"(SELECT * FROM {table} {mine})" for table in TABLES})
                return writer.finish(lineage=lineage, connection=connection)

    def _choose(self) -> None:
        """Create a table `chosen`: the ids by position, and how many steps come before each."""
        expressions, wide = _parsed(self._store, self._connection, self._verbs)
        relation = self._connection.sql(wide)
        by_id = duckdb.ColumnExpression("episode_id")
        order: tuple[duckdb.Expression, ...] = (by_id,)
        for verb in self._verbs:
            if verb.name == "order_by":
                # generated by `parse`: it contains no unchecked text of the user
                expression = duckdb.SQLExpression(next(expressions).sql)
                order = (expression.desc() if verb.is_descending else expression.asc(), by_id)
                continue
            if verb.name == "where":
                relation = relation.filter(next(expressions).sql)
            else:
                relation = relation.sort(*order).limit(int(verb.argument))
            (counted,) = relation.aggregate("count(*), CAST(coalesce(sum(n_steps), 0) AS BIGINT)").fetchall()
            self._counts.append(counted)
        relation.sort(*order).select("episode_id", "n_steps").create("in_order")
        self._connection.execute(
            "CREATE TABLE chosen AS SELECT episode_id, rowid AS position, "
            "CAST(sum(n_steps + 1) OVER (ORDER BY rowid) AS BIGINT) - n_steps - 1 AS n_before FROM in_order"
        )

    def _batches(self) -> list[Batch]:
        found = self._connection.execute(
            "SELECT min(position), max(position), min(episode_id), max(episode_id) FROM chosen "
            f"GROUP BY n_before // {_STEPS_PER_BATCH} ORDER BY 1"
        ).fetchall()
        return [Batch(*row) for row in found]

    def _rows(self, table: str, batch: Batch) -> Iterator[pa.RecordBatch]:
        source = "steps" if table == "steps_full" else table
        chosen = f"(FROM chosen WHERE position BETWEEN {batch.first} AND {batch.last})"
        keys = ["c.position", *(f"t.{key}" for key in _KEYS.get(source, ()))]
        with explaining(self._store, self._connection):
            # the files of the batch, and not the views, which are of all files
            paths = parts_between(self._connection, self._store, batch.lowest_id, batch.highest_id)[source]
            rows = rows_of(self._store, source, paths)
            mine = (
                f"SELECT * FROM ({rows}) SEMI JOIN {chosen} USING (episode_id) "
                "WHERE episode_id BETWEEN $lowest AND $highest"
            )
            if table == "steps_full":
                mine = full_steps(f"({mine})")
            reader = self._connection.sql(
                f"SELECT t.* FROM ({mine}) AS t JOIN {chosen} AS c USING (episode_id) "
                f"ORDER BY {', '.join(keys)}",
                params={"lowest": batch.lowest_id, "highest": batch.highest_id},
            ).to_arrow_reader(_ROWS_PER_BATCH)
        try:
            while True:
                with explaining(self._store, self._connection):
                    found = next(reader, None)
                if found is None:
                    break
                yield found
        finally:
            reader.close()

    def _episodes_of(self, batch: Batch) -> Iterator[Episode]:
        own = [row for rows in self._rows("episodes", batch) for row in rows.to_pylist()]
        feedback: dict[str, list[Row]] = {row["episode_id"]: [] for row in own}
        for rows in self._rows("feedback", batch):
            for row in rows.to_pylist():
                feedback[row["episode_id"]].append(row)
        steps = (row for rows in self._rows("steps", batch) for row in rows.to_pylist())
        runs = itertools.groupby(steps, key=lambda row: row["episode_id"])
        waiting = next(runs, None)
        for row in own:
            episode_id = row["episode_id"]
            if waiting is not None and waiting[0] == episode_id:
                yield episode_of(row, list(waiting[1]), feedback[episode_id])
                waiting = next(runs, None)
            else:
                yield episode_of(row, (), feedback[episode_id])

    def _find(self, text: str) -> tuple[int, str]:
        ask = self._connection.execute
        found: list[tuple[int, str]]
        if found := ask("SELECT position, episode_id FROM chosen WHERE episode_id = ?", [text]).fetchall():
            return found[0]
        if text.isdecimal() and str(int(text)) == text and int(text) < self.n_episodes:
            found = ask("SELECT position, episode_id FROM chosen WHERE position = ?", [int(text)]).fetchall()
            return found[0]
        found = ask(
            "SELECT position, episode_id FROM chosen WHERE starts_with(episode_id, ?) ORDER BY 2 LIMIT 4",
            [text],
        ).fetchall()
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(str(episode_id) for _, episode_id in found[:3])
            raise QueryError(
                f"several episodes begin with {text!r}", hint=f"{listed}{' …' if len(found) > 3 else ''}"
            )
        near = ask(
            "SELECT episode_id FROM chosen ORDER BY levenshtein(episode_id, ?), 1 LIMIT 3", [text]
        ).fetchall()
        raise NothingMatched(
            f"no episode {text!r} in {self._store.path}",
            hint=f"nearest: {', '.join(episode_id for (episode_id,) in near)}; or a position from 0 to "
            f"{self.n_episodes - 1}"
            if near
            else "it has no episodes",
        )


def _parsed(
    store: Store, connection: duckdb.DuckDBPyConnection, verbs: Sequence[Verb]
) -> tuple[Iterator[Expression], str]:
    """Return the parsed expressions of the verbs that have one, and a SELECT of the columns they need."""
    texts = [verb.argument for verb in verbs if verb.name != "limit"]
    if not texts:
        return iter(()), "SELECT episode_id, n_steps FROM episodes"
    names, sql = names_of(store, connection)
    expressions = [parse(text, names) for text in texts]
    needed = sorted({"episode_id", "n_steps"}.union(*(each.names for each in expressions)))
    columns = ", ".join(f"{sql[name]} AS {quoted(column_name(name))}" for name in needed)
    return iter(expressions), f"SELECT {columns} FROM episodes"
