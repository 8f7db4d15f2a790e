"""Derive a store from a store: how the commands of curation read and write, in this process or by an engine.

The decisions of a command are temporary tables: ids, weights, masks. An engine gets them as Parquet, sorted
by id, and each of its shards has views of them, on which the command's own views work as they do here.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

import trajkit
from trajkit._core.division import shards_folder
from trajkit._core.files import named_by_content, refuse_existing
from trajkit._core.settings import STATE_FOLDER
from trajkit.engines.engine import Engine
from trajkit.errors import DataError, NothingMatched, StoreError
from trajkit.schema import Left, LineageEntry, Manifest, Metric
from trajkit.schema.base import JsonObject
from trajkit.store.engine import MEMORY_LIMIT, connect, file_literal, first_line, interruptible, literal
from trajkit.store.reader import Store, open_store, verifying
from trajkit.store.tally import lines_of
from trajkit.store.view import create_views, narrow_views
from trajkit.store.writer import StoreWriter

PLAN = "trajkit_parts"
"""Table of the episodes to write, with the part that each belongs to."""
MOST_SHARDS = 1_000
"""Slurm's default limit of an array."""
_STEPS_PER_PART = 25_000
_BYTES_PER_PART = 200_000_000


class Piece(NamedTuple):
    """A part of the episodes in `PLAN`."""

    part: int
    lowest: str
    """Its first id."""
    highest: str
    """Its last id."""

    @property
    def where(self) -> str:
        """A condition on `episode_id` that its episodes meet, so that other row groups are skipped."""
        return f"episode_id BETWEEN {literal(self.lowest)} AND {literal(self.highest)}"

    @property
    def sql(self) -> str:
        """The SQL after `SELECT … FROM steps`."""
        return (
            f"SEMI JOIN (SELECT episode_id FROM {PLAN} WHERE part = {self.part}) USING (episode_id) "
            f"WHERE {self.where}"
        )


class Written(NamedTuple):
    """The rows of the source to write."""

    kind: str
    """Name of the command."""
    episodes: str
    """Relation with the episodes."""
    steps: str
    """Relation with the steps."""
    metrics: Sequence[Metric]

    def add(self, writer: StoreWriter, connection: duckdb.DuckDBPyConnection, piece: Piece) -> None:
        """Write one part."""
        writer.add(
            connection,
            episodes=f"(SELECT * FROM {self.episodes} {piece.sql})",
            steps=f"(SELECT * FROM {self.steps} {piece.sql})",
            feedback=f"(SELECT * FROM feedback {piece.sql})",
        )


@dataclass(frozen=True)
class Derivation:
    """One store, open for commands that derive others from it. Made by `deriving`."""

    store: Store
    """The store that is read. Its checksums are verified before a result is shown or written."""
    connection: duckdb.DuckDBPyConnection
    """Has the views `episodes`, `steps`, `feedback` and `steps_full`: of the whole store, but while a part is
    read or written they lack other episodes. It is not fenced: expressions of users reach it only through
    `trajkit.store.conditions.expression`."""
    verified: Callable[[], None]
    """Wait for the checksums; raises `StoreError` if one differs."""
    engine: Engine | None = None
    """Runs work shard by shard; None for this process."""
    folder: Path = STATE_FOLDER
    """Folder of the engine's jobs; every worker sees it."""

    def refuse_repeated_steps(self) -> None:
        """Refuse a store with repeated steps, before joins by step multiply its rows.

        Raises:
            StoreError: A step occurs twice. Only stores that trajkit did not write have such steps.
        """
        found = self.connection.execute(
            "SELECT episode_id, step_index FROM steps GROUP BY ALL HAVING count(*) > 1 LIMIT 1"
        ).fetchone()
        if found is not None:
            raise StoreError(
                f"{self.store.path}: step {found[1]} of episode {found[0]!r} occurs more than once",
                hint="something other than trajkit wrote or changed this store: build it again",
            )

    def entry(
        self,
        *,
        verb: str,
        arguments: JsonObject,
        kept: str = "episodes",
        left: Sequence[Left] = (),
        masked: Sequence[Left] = (),
    ) -> LineageEntry:
        """Return the lineage entry of a command; nothing is written (a dry run needs no more).

        Args:
            verb: Name of the command, such as `select`.
            arguments: Its options; never a secret.
            kept: Relation with the `episode_id`s that stay.
            left: Counts of the other episodes by reason.
            masked: Counts of the steps that stay and are no longer learned, by reason.

        Raises:
            DataError: `left` does not count as many episodes as `kept` lacks.
        """
        n_episodes, n_steps = self._counts(kept)
        self.verified()
        counts = self.store.manifest.counts
        n_gone, n_explained = counts.n_episodes - n_episodes, sum(each.n_episodes for each in left)
        if n_gone != n_explained:
            raise DataError(f"{verb}: {n_gone:,} episodes are left out; the reasons count {n_explained:,}")
        return LineageEntry(
            verb=verb,
            arguments=arguments,
            parent_digest=self.store.manifest.digest,
            n_episodes_in=counts.n_episodes,
            n_episodes_out=n_episodes,
            n_steps_in=counts.n_steps,
            n_steps_out=n_steps,
            left=tuple(each for each in left if each.n_episodes or each.n_steps),
            masked=tuple(each for each in masked if each.n_steps),
            done_at=datetime.now(UTC),
            trajkit_version=trajkit.__version__,
        )

    def write(
        self,
        goal: Path,
        *,
        verb: str,
        arguments: JsonObject,
        kept: str = "episodes",
        steps: str = "steps",
        episodes: str = "episodes",
        metrics: Sequence[Metric] | None = None,
        left: Sequence[Left] = (),
        masked: Sequence[Left] = (),
        split: str | None = None,
    ) -> Manifest:
        """Write a new store of the episodes that stay. May be called again.

        The relations are read in parts, each time for the episodes of one part: a relation that is expensive
        or compares episodes must be a table. Digest and content hashes are computed from the written rows.

        Args:
            goal: The folder to write.
            verb: Name of the command; also the new store's kind.
            arguments: Its options; never a secret.
            kept: Relation with the `episode_id`s that stay; further columns and repeated rows are ignored.
            steps: Relation with all columns of the layout's `steps`, of at least the episodes that stay.
            episodes: The same for `episodes`.
            metrics: The metrics that have a column; None for those of the store.
            left: Counts of the other episodes by reason; they add up to those that `kept` lacks.
            masked: Counts of the steps that stay and are no longer learned, by reason.
            split: Name of this side of a split; None keeps the store's.

        Returns:
            The new manifest; the last entry of its lineage is this verb's.

        Raises:
            StoreError: `goal` exists, or cannot be written.
            NothingMatched: No episode stays.
            DataError: `left` does not add up, or a relation does not fit the layout.
        """
        refuse_existing(goal)
        entry = self.entry(verb=verb, arguments=arguments, kept=kept, left=left, masked=masked)
        if not entry.n_episodes_out:
            raise nothing_left(self.store, entry)
        manifest = self.store.manifest
        written = Written(verb, episodes, steps, manifest.metrics if metrics is None else metrics)
        with StoreWriter(
            goal,
            kind=verb,
            metrics=written.metrics,
            source=manifest.source,
            as_of=manifest.as_of,
            split=manifest.split if split is None else split,
        ) as writer:
            self.add(writer, written, kept)
            return writer.finish(lineage=(*manifest.lineage, entry), connection=self.connection)

    def add(self, writer: StoreWriter, written: Written, kept: str = "episodes") -> None:
        """Add episodes to a store that is being written, in this process or by the engine.

        Args:
            writer: Writes the store.
            written: The rows to write.
            kept: Relation with their `episode_id`s.
        """
        if self.engine is None:
            for piece in self._narrowed(kept):
                written.add(writer, self.connection, piece)
            return
        pieces = self._pieces(kept)
        tables, views = _decided(self.connection, (written.episodes, written.steps, PLAN))
        size = math.ceil(len(pieces) / MOST_SHARDS)
        common = {
            **self.task,
            "tables": {name: saved(self.connection, name, self.folder) for name in tables},
            "views": views,
            "written": {**written._asdict(), "metrics": [m.model_dump(mode="json") for m in written.metrics]},
        }
        items = [{**common, "pieces": pieces[at : at + size]} for at in range(0, len(pieces), size)]
        made = dict(self.engine.map(write_shard, items, what=written.kind, folder=self.folder))
        for index in sorted(made):
            writer.copy(open_store(self.folder / made[index]), is_linked=True)

    @property
    def task(self) -> dict[str, str]:
        """Facts that every task of an engine gets, besides its own."""
        return {
            "store": str(self.store.path),
            "digest": self.store.manifest.digest,
            "folder": str(self.folder),
        }

    def over(self, function: Callable[[Any], str], facts: JsonObject, *, what: str) -> Iterator[Path]:
        """Let the engine call a function for spans of all episodes, and yield the file that each call wrote.

        Args:
            function: Takes the facts and `store`, `digest`, `where` (an SQL condition on the ids of the span)
                and `folder`. It writes a file in that folder, as in `Engine.map`, and returns its name.
            facts: What the result depends on, besides the store.
            what: Name of the work.
        """
        assert self.engine is not None
        pieces = self._pieces("episodes")
        size = math.ceil(len(pieces) / MOST_SHARDS) or 1
        runs = [pieces[at : at + size] for at in range(0, len(pieces), size)]
        spans = [run[0]._replace(highest=run[-1].highest) for run in runs]
        items = [{**facts, **self.task, "where": span.where} for span in spans]
        with contextlib.closing(
            self.engine.map(
                function, items, what=what, folder=self.folder, on_progress=lambda what, done, total: None
            )
        ) as results:
            for _, name in results:
                yield self.folder / name

    def parts(self, kept: str = "episodes") -> Iterator[str]:
        """Yield the SQL to put after `SELECT … FROM steps`, for one part of the episodes at a time.

        The texts of a part fit into memory. Its episodes are neighbours by id, so that other row groups are
        skipped. A yielded text is valid until the next one, or another call of `parts` or `write`. The views
        have all episodes again after the last one.

        Args:
            kept: Relation with the `episode_id`s to read.
        """
        for piece in self._narrowed(kept):
            yield piece.sql

    def _narrowed(self, kept: str) -> Iterator[Piece]:
        for piece in self._pieces(kept):
            narrow_views(self.connection, self.store, piece.lowest, piece.highest)
            yield piece
        create_views(self.connection, self.store)

    def _pieces(self, kept: str) -> list[Piece]:
        self.connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {PLAN} AS SELECT episode_id, CAST((sum(n_steps + 1) OVER "
            f"(ORDER BY episode_id) - n_steps - 1) // {self._steps_per_part(kept)} AS BIGINT) AS part "
            f"FROM episodes WHERE episode_id IN (SELECT episode_id FROM {kept})"
        )
        found = self.connection.execute(
            f"SELECT part, min(episode_id), max(episode_id) FROM {PLAN} GROUP BY part ORDER BY part"
        ).fetchall()
        return [Piece(*each) for each in found]

    def _steps_per_part(self, kept: str) -> int:
        """Return how many steps of this store's mean size fit into memory."""
        names = ", ".join(map(file_literal, self.store.parts("steps")))
        found = self.connection.execute(
            f"SELECT sum(total_uncompressed_size) FROM parquet_metadata([{names}])"
        ).fetchone()
        n_bytes = int(found[0] or 0) if found else 0
        n_steps = max(1, self.store.manifest.counts.n_steps)
        most = max(1, min(_STEPS_PER_PART, _BYTES_PER_PART * n_steps // max(1, n_bytes)))
        if self.engine is None:
            return most
        return min(most, math.ceil(sum(self._counts(kept)) / self.engine.n_shards) or 1)

    def _counts(self, kept: str) -> tuple[int, int]:
        ((n_episodes, n_steps),) = self.connection.execute(
            "SELECT count(*), CAST(coalesce(sum(n_steps), 0) AS BIGINT) FROM episodes "
            f"WHERE episode_id IN (SELECT episode_id FROM {kept})"
        ).fetchall()
        return n_episodes, n_steps


@contextlib.contextmanager
def deriving(
    path: str | Path,
    *,
    memory_limit: str = MEMORY_LIMIT,
    threads: int | None = None,
    verifies_beside: bool = False,
    engine: Engine | None = None,
    goal: Path | None = None,
    is_verified: bool = False,
) -> Iterator[Derivation]:
    """Open a store to derive others from it; Ctrl-C stops queries inside the block.

    Args:
        path: The folder, or `sample:NAME`.
        memory_limit: Memory limit of DuckDB, such as `1GB`, which spills to disk above it.
        threads: None for one per core.
        verifies_beside: Compute checksums while the block reads. The block must show and write nothing before
            `Derivation.entry` or `write`, which wait for them.
        engine: Runs work shard by shard; None for this process.
        goal: The folder that the block makes. The engine's jobs are kept (`shards_folder`) until the block
            ends well: the same command continues with what is done.
        is_verified: Whether the checksums were verified, as for a worker that reads a span.

    Raises:
        StoreError: It is not a store, a part is missing or changed, or a file cannot be read.
    """
    store = open_store(path)
    with (
        contextlib.nullcontext(_verified_before) if is_verified else verifying(store) as verified,
        connect(memory_limit=memory_limit, threads=threads) as connection,
    ):
        if not verifies_beside:
            verified()
        create_views(connection, store)
        folder = shards_folder(goal or STATE_FOLDER / f"counted-{os.getpid()}")
        with reading(connection, str(store.path), hint=NO_ROOM):
            yield Derivation(store, connection, verified, engine, folder)
        if engine is not None:
            shutil.rmtree(folder, ignore_errors=True)


NO_ROOM = "the folder for temporary files or the memory may be full"
"""Hint if a store could not be read."""


@contextlib.contextmanager
def reading(connection: duckdb.DuckDBPyConnection, stores: str, *, hint: str | None = None) -> Iterator[None]:
    """Let Ctrl-C stop the queries of a block, and name the stores that it could not read.

    Raises:
        StoreError: A file cannot be read, or memory ran out.
    """
    try:
        with interruptible(connection):
            yield
    except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
        raise StoreError(f"{stores} could not be read: {first_line(error)}", hint=hint) from error


def _verified_before() -> None:
    """Do nothing: the driver has verified the checksums."""


def nothing_left(store: Store, entry: LineageEntry) -> NothingMatched:
    """Return the error of a command that leaves no episode."""
    return NothingMatched(
        f"{entry.verb} leaves no episode of {store.path}",
        hint="; ".join(line.strip() for line in lines_of(entry)[1:]) or "the store has no episodes",
    )


def write_shard(item: dict[str, Any]) -> str:
    """Write a store of some parts, under a new name, and return the name."""
    name = f"shard-{secrets.token_hex(6)}"
    facts = item["written"]
    written = Written(**{**facts, "metrics": [Metric.model_validate(m) for m in facts["metrics"]]})
    store = open_store(item["store"])
    with (
        connect(threads=1) as connection,
        StoreWriter(Path(item["folder"]) / name, kind=written.kind, metrics=written.metrics) as writer,
    ):
        create_views(connection, store)
        for table, file in item["tables"].items():
            scan = f"read_parquet({file_literal(Path(file))})"
            connection.execute(f"CREATE TEMP VIEW {table} AS SELECT * FROM {scan}")
        for view in item["views"]:
            connection.execute(view)
        for piece in (Piece(*each) for each in item["pieces"]):
            narrow_views(connection, store, piece.lowest, piece.highest)
            written.add(writer, connection, piece)
        writer.finish(connection=connection)
    return name


def _decided(connection: duckdb.DuckDBPyConnection, relations: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the temporary tables that some relations need, and the definitions of the views, in order."""
    definitions: dict[str, str | None] = dict(
        connection.execute(
            "SELECT table_name, NULL FROM duckdb_tables() WHERE temporary UNION ALL "
            # a Python table is also a view
            "SELECT view_name, CASE WHEN NOT contains(sql, 'python_arrow_scan') THEN sql END "
            "FROM duckdb_views() WHERE temporary AND NOT internal"
        ).fetchall()
    )
    tables: list[str] = []
    views: list[str] = []

    def visit(sql: str) -> None:
        for name in re.findall(r"\w+", sql):
            if name not in definitions:
                continue
            definition = definitions.pop(name)
            if definition is None:
                tables.append(name)
            else:
                visit(definition)
                views.append(definition)

    for relation in relations:
        visit(relation)
    return tables, views


def saved(connection: duckdb.DuckDBPyConnection, table: str, folder: Path) -> str:
    """Write a table as Parquet, and return the path."""

    def write(path: Path) -> None:
        connection.execute(
            f"COPY (SELECT * FROM {table} ORDER BY ALL) TO {literal(str(path))} (FORMAT parquet)"
        )

    return str(named_by_content(folder, f"{table}.parquet", write))
