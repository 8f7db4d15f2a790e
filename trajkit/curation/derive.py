"""A store from a store: what every verb of curation reads with, and the one way in which it writes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb

import trajkit
from trajkit._core.files import refuse_existing
from trajkit.errors import DataError, NothingMatched, StoreError
from trajkit.schema import Left, LineageEntry, Manifest, Metric
from trajkit.schema.base import JsonObject
from trajkit.store.engine import connect, file_literal, first_line, interruptible, literal
from trajkit.store.reader import Store, open_store, verifying
from trajkit.store.tally import lines_of
from trajkit.store.view import create_views
from trajkit.store.writer import StoreWriter

_STEPS_PER_PART = 50_000
_BYTES_PER_PART = 200_000_000
_PLAN = "trajkit_parts"


@dataclass(frozen=True)
class Derivation:
    """One store, open for verbs that make others of it. Made by `deriving`."""

    store: Store
    """What is read; its checksums are verified before anything that was found is told or written."""
    connection: duckdb.DuckDBPyConnection
    """Has the views `episodes`, `steps`, `feedback` and `steps_full` of the whole store. It is not fenced:
    what a user wrote comes here only through `trajkit.store.expression`."""
    verified: Callable[[], None]
    """Waits for the checksums, and raises `StoreError` where one differs."""

    def refuse_repeated_steps(self) -> None:
        """Refuse a store in which a step is there twice, before joins by step multiply its rows.

        Raises:
            StoreError: There is one; only a store that something else than trajkit wrote has it.
        """
        found = self.connection.execute(
            "SELECT episode_id, step_index FROM steps GROUP BY ALL HAVING count(*) > 1 LIMIT 1"
        ).fetchone()
        if found is not None:
            raise StoreError(
                f"{self.store.path}: step {found[1]} of episode {found[0]!r} is there more than once",
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
        """What a verb did, as the lineage tells it; nothing is written (a dry run needs no more).

        Args:
            verb: Its name, such as `select`.
            arguments: Its options; never a secret.
            kept: Relation with the `episode_id`s that stay.
            left: Why the others do not.
            masked: Steps that stay and are no longer learned, by reason.

        Raises:
            DataError: The episodes of `left` are not those that `kept` lacks, in number.
        """
        n_episodes, n_steps = self._counts(kept)
        self.verified()
        counts = self.store.manifest.counts
        gone, told = counts.n_episodes - n_episodes, sum(each.n_episodes for each in left)
        if gone != told:
            raise DataError(f"{verb}: {gone:,} episodes left and the reasons count {told:,}")
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
        """Write a new store: the episodes that stay, with what the verb made of them. May be called again.

        The relations are read a part at a time, each time for the episodes of that part: what is dear to
        compute should be a table. Digest and content hashes are computed from what is written.

        Args:
            goal: The folder that exists afterwards.
            verb: The verb's name; also the new store's kind.
            arguments: Its options; never a secret.
            kept: Relation with the `episode_id`s that stay; more columns and equal rows do no harm.
            steps: Relation with all columns of the layout's `steps`, of at least the episodes that stay.
            episodes: The same for `episodes`.
            metrics: The metrics that have a column; None for those of the store.
            left: Why the others do not stay; their episodes add up to those that `kept` lacks.
            masked: Steps that stay and are no longer learned, by reason.
            split: Which side of a split it is; None for what the store says.

        Returns:
            The new manifest; the last entry of its lineage is this verb's.

        Raises:
            StoreError: `goal` exists, or cannot be written.
            NothingMatched: No episode stays.
            DataError: `left` does not add up, or a relation is not what the layout asks for.
        """
        refuse_existing(goal)
        entry = self.entry(verb=verb, arguments=arguments, kept=kept, left=left, masked=masked)
        if not entry.n_episodes_out:
            raise nothing_left(self.store, entry)
        manifest = self.store.manifest
        with StoreWriter(
            goal,
            kind=verb,
            metrics=manifest.metrics if metrics is None else metrics,
            source=manifest.source,
            as_of=manifest.as_of,
            split=manifest.split if split is None else split,
        ) as writer:
            for mine in self.parts(kept):
                writer.add(
                    self.connection,
                    episodes=f"(SELECT * FROM {episodes} {mine})",
                    steps=f"(SELECT * FROM {steps} {mine})",
                    feedback=f"(SELECT * FROM feedback {mine})",
                )
            return writer.finish(lineage=(*manifest.lineage, entry))

    def parts(self, kept: str = "episodes") -> Iterator[str]:
        """What comes after `SELECT … FROM steps` to read a part of the episodes at a time.

        A part's texts fit into memory. It holds neighbours by id, so that whole row groups are passed over.
        What it gives holds until the next one is asked for, or another call of `parts` or `write`.

        Args:
            kept: Relation with the `episode_id`s to read.
        """
        self.connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {_PLAN} AS SELECT episode_id, CAST((sum(n_steps + 1) OVER "
            f"(ORDER BY episode_id) - n_steps - 1) // {self._steps_per_part()} AS BIGINT) AS part "
            f"FROM episodes WHERE episode_id IN (SELECT episode_id FROM {kept})"
        )
        parts = self.connection.execute(
            f"SELECT part, min(episode_id), max(episode_id) FROM {_PLAN} GROUP BY part ORDER BY part"
        ).fetchall()
        for part, lowest, highest in parts:
            yield (
                f"SEMI JOIN (SELECT episode_id FROM {_PLAN} WHERE part = {part}) USING (episode_id) "
                f"WHERE episode_id BETWEEN {literal(lowest)} AND {literal(highest)}"
            )

    def _steps_per_part(self) -> int:
        """So many that the texts of a part fit into memory, going by their mean length in this store."""
        names = ", ".join(map(file_literal, self.store.parts("steps")))
        found = self.connection.execute(
            f"SELECT sum(total_uncompressed_size) FROM parquet_metadata([{names}])"
        ).fetchone()
        n_bytes = int(found[0] or 0) if found else 0
        n_steps = max(1, self.store.manifest.counts.n_steps)
        return max(1, min(_STEPS_PER_PART, _BYTES_PER_PART * n_steps // max(1, n_bytes)))

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
    memory_limit: str | None = None,
    threads: int | None = None,
    verifies_beside: bool = False,
) -> Iterator[Derivation]:
    """Open a store to make another of it; Ctrl-C stops what runs inside the block.

    Args:
        path: The folder, or `sample:NAME`.
        memory_limit: Of DuckDB, such as `1GB`; what does not fit waits on disk. None for most of the machine.
        threads: None for one per core.
        verifies_beside: Checksums are computed while the block reads. For a block that tells and writes
            nothing before `Derivation.entry` or `write`, which wait for them.

    Raises:
        StoreError: It is not a store, a part is missing or changed, or a file could not be read.
    """
    store = open_store(path)
    with (
        verifying(store) as verified,
        connect(memory_limit=memory_limit, threads=threads) as connection,
    ):
        if not verifies_beside:
            verified()
        create_views(connection, store)
        try:
            with interruptible(connection):
                yield Derivation(store, connection, verified)
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            raise StoreError(
                f"{store.path} could not be read: {first_line(error)}",
                hint="is there room in the folder for temporary files, and in memory?",
            ) from error


def nothing_left(store: Store, entry: LineageEntry) -> NothingMatched:
    """The error of a verb that leaves no episode."""
    return NothingMatched(
        f"{entry.verb} leaves no episode of {store.path}",
        hint="; ".join(line.strip() for line in lines_of(entry)[1:]) or "the store has no episodes",
    )
