"""Write a store: first the parts, then the checks, then the manifest; last, the folder gets its name."""

from __future__ import annotations

import contextlib
import functools
import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

import trajkit
from trajkit._core.address import place_of
from trajkit._core.files import (
    make_parent,
    refuse_existing,
    settle,
    sha256_file,
    temporary_beside,
    unwritable,
    write_text,
)
from trajkit.errors import DataError, StoreError
from trajkit.schema import Counts, Episode, LineageEntry, Manifest, Metric, Part
from trajkit.schema.base import JsonObject
from trajkit.store.digest import ORDER, ContentHashes, elements, ordered_batches, store_digest
from trajkit.store.engine import connect, interruptible, scan, writing
from trajkit.store.layout import CONTENT_HASH, MANIFEST_NAME, TABLES, Column, columns, quoted
from trajkit.store.reader import Store, copy_part
from trajkit.store.writing.check import check
from trajkit.store.writing.part import Late, Rows, arrow_schema, write_part
from trajkit.store.writing.spool import Spool

CHECKING_MEMORY = "1GB"
"""Maximum memory of `finish`; the rest spills to disk."""


class StoreWriter:
    """Writes one store. Use as a context manager; without `finish()` nothing is left behind.

    Args:
        goal: The folder to write. It must not exist before.
        kind: The command that makes it, such as `rollout` or `export`.
        metrics: The metrics that get a column.
        source: Source of the episodes; never a password.
        as_of: Time at which the source was read.
        split: Name of the side of a split that it is.

    Raises:
        StoreError: `goal` exists, or its folder cannot be written (on entering the block).
        DataError: Two metrics of one level have names that differ only by case.
    """

    def __init__(
        self,
        goal: Path,
        *,
        kind: str,
        metrics: Sequence[Metric] = (),
        source: JsonObject | None = None,
        as_of: datetime | None = None,
        split: str | None = None,
    ) -> None:
        self._goal = place_of(goal).absolute()
        self._metrics = tuple(sorted(metrics, key=lambda metric: (metric.level, metric.name)))
        self._facts = {"kind": kind, "source": source or {}, "as_of": as_of, "split": split}
        self._folder: Path | None = None
        self._parts: list[Part] = []
        self._numbers = itertools.count()  # next() is atomic: several threads may add parts
        _refuse_twins(self._metrics)

    def __enter__(self) -> Self:
        refuse_existing(self._goal)
        folder = self._folder = temporary_beside(self._goal)
        try:
            make_parent(self._goal)
            folder.mkdir()
            for table in TABLES:
                (folder / table).mkdir()
        except BaseException as error:  # also Ctrl-C: the `with` block has not begun and cannot clean up
            self._discard()
            if isinstance(error, OSError):
                raise unwritable(self._goal, error) from error
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._discard()

    def add(self, connection: duckdb.DuckDBPyConnection, *, episodes: str, steps: str, feedback: str) -> None:
        """Write whole episodes as one part of each table. Thread-safe if each thread has its own cursor.

        Each relation is read once, sorted by DuckDB and written by columns. Sorting needs memory for one
        part: more episodes need several calls.

        Args:
            connection: Has the relations; no result of it may be open.
            episodes: Name of a table or view, or a SELECT in brackets, with the columns of the layout by
                name, in any order, of types that can be cast to the layout's.
            steps: The same for the steps of these episodes, all of them.
            feedback: The same for the feedback on these episodes.

        Raises:
            StoreError: The disk is full, or the folder cannot be written.
            DataError: A column is missing, or a value does not fit its column.
        """
        with interruptible(connection):
            self.write(self.rows(connection, episodes=episodes, steps=steps, feedback=feedback))

    def rows(
        self,
        connection: duckdb.DuckDBPyConnection,
        *,
        episodes: str,
        steps: str,
        feedback: str,
        late: Late | None = None,
    ) -> Rows:
        """Return the rows that `add` writes, for `write`; `late` computes some columns of the steps."""
        batches = {
            "episodes": self._ordered(connection, "episodes", episodes),
            "steps": self._ordered(connection, "steps", steps, late),
            "feedback": self._ordered(connection, "feedback", feedback),
        }
        return Rows(batches, late)

    def next_number(self) -> int:
        """Return the number of the next part, for callers that write several at a time."""
        return next(self._numbers)

    def write(self, rows: Rows, number: int | None = None) -> None:
        """Write the rows of whole episodes as one part of each table.

        Args:
            rows: Result of `rows`.
            number: Result of `next_number`, if other parts are written at the same time; None for the next
                one.

        Raises:
            StoreError: The disk is full, or the folder cannot be written.
            DataError: A column is missing, or a value does not fit its column.
        """
        is_alone = number is None
        number = self.next_number() if number is None else number
        hashes = ContentHashes()

        def hashed(table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
            late = rows.late if table == "steps" else None
            whole = batch if late is None else late.filled(batch)
            hashes.update(whole, elements(table))
            return whole

        with writing(self._open_folder() / "episodes"):
            of_episodes = [hashed("episodes", batch) for batch in rows.batches["episodes"]]
        batches = dict(rows.batches)
        if rows.late is not None:
            batches["steps"] = rows.late.cut(batches["steps"])
        for table in ("steps", "feedback"):
            finished = functools.partial(hashed, table)
            self._write(table, number, batches[table], finished=finished, is_alone=is_alone)
        self._write("episodes", number, _with_hashes(of_episodes, hashes.table()))

    def keep(self, rows: Mapping[str, pa.Table]) -> None:
        """Write rows of whole episodes of an existing store, with their existing hashes.

        Args:
            rows: By table, with all columns, in the order of a part of that store, whose metrics are those of
                this writer. Without episodes nothing is written.

        Raises:
            StoreError: The disk is full, or the folder cannot be written.
        """
        number = self.next_number()
        for table in TABLES:
            self._write(table, number, rows[table].to_batches())

    def copy(self, store: Store, name: str | None = None, *, is_linked: bool = False) -> None:
        """Copy the parts of a store unchanged, with the hashes of their episodes.

        Args:
            store: Its checksums must have been verified, and its metrics be those of this writer.
            name: Name of the parts to copy, such as `part-00000.parquet`; None for all.
            is_linked: Link the files where the disk can, for a store that is removed afterwards.

        Raises:
            StoreError: The disk is full, or the folder cannot be written.
        """
        folder = self._open_folder()
        # empty parts are not copied: `finish` writes one if a table has no part
        written = [part for part in store.manifest.parts if part.n_rows and name in (None, _name(part))]
        number_by_name = {name: self.next_number() for name in sorted({_name(part) for part in written})}
        with writing(self._goal):
            for part in written:
                path = f"{part.path.partition('/')[0]}/part-{number_by_name[_name(part)]:05}.parquet"
                copy_part(store, part, folder / path, is_linked=is_linked)
                self._parts.append(part.model_copy(update={"path": path}))

    def finish(
        self,
        *,
        lineage: Sequence[LineageEntry] = (),
        connection: duckdb.DuckDBPyConnection | None = None,
        expected: str | None = None,
    ) -> Manifest:
        """Check everything, write the manifest and give the folder its name.

        Args:
            lineage: The lineage, oldest entry first.
            connection: A connection whose database also does the checks, with a folder to spill to, and whose
                memory limit becomes that of the checks: opening a new one takes longer than checking a small
                store. None for a new one.
            expected: The digest that the store must have; None for any.

        Raises:
            DataError: The added rows are not a store: an episode twice, steps or feedback without their
                episode, missing steps, an invalid value.
            StoreError: The disk is full, the goal appeared meanwhile, or the digest is not `expected`.
        """
        folder = self._open_folder()
        with contextlib.ExitStack() as stack:
            checking = connection
            if checking is None:
                checking = stack.enter_context(connect(spill=folder / "spill"))
            own = stack.enter_context(checking.cursor())  # its temporary tables are its own
            stack.enter_context(writing(self._goal, own))
            digest = self._checked(own, folder)
        if expected not in (None, digest):
            raise StoreError(
                f"what would be {self._goal} has the digest {digest}; {expected} was published",
                hint="the files were changed after they were published; nothing was written",
            )
        shutil.rmtree(folder / "spill", ignore_errors=True)
        manifest = self._manifest(digest, lineage)
        with writing(self._goal):
            write_text(folder / MANIFEST_NAME, manifest.model_dump_json(indent=2) + "\n")
            refuse_existing(self._goal)
            settle(folder, self._goal)
        self._folder = None
        return manifest

    def _checked(self, connection: duckdb.DuckDBPyConnection, folder: Path) -> str:
        """Check the written parts, and return their digest."""
        connection.execute(f"SET memory_limit = '{CHECKING_MEMORY}'")
        connection.execute("SET parquet_metadata_cache = true")
        for table in ORDER:
            if not any(part.path.startswith(f"{table}/") for part in self._parts):
                self._write(table, 0, (), even_if_empty=True)
            paths = [folder / part.path for part in self._parts if part.path.startswith(f"{table}/")]
            connection.execute(f"CREATE TEMP VIEW {table} AS SELECT * FROM {scan(paths)}")
        check(connection, self._metrics)
        return store_digest(connection, "episodes")

    def _manifest(self, digest: str, lineage: Sequence[LineageEntry]) -> Manifest:
        rows = dict.fromkeys(ORDER, 0)
        for part in self._parts:
            rows[part.path.partition("/")[0]] += part.n_rows
        return Manifest.model_validate(
            {
                **self._facts,
                "digest": digest,
                "counts": Counts(
                    n_episodes=rows["episodes"], n_steps=rows["steps"], n_feedback=rows["feedback"]
                ),
                "metrics": self._metrics,
                "lineage": tuple(lineage),
                "parts": tuple(sorted(self._parts, key=lambda part: part.path)),
                "created_at": datetime.now(UTC),
                "trajkit_version": trajkit.__version__,
            }
        )

    def _open_folder(self) -> Path:
        if self._folder is None:
            raise StoreError(
                f"{self._goal} is not being written", hint="use the writer in a `with` block, once"
            )
        return self._folder

    def _discard(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _ordered(
        self, connection: duckdb.DuckDBPyConnection, table: str, relation: str, late: Late | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of a relation in the order of the table, with the columns that `late` needs."""
        keys, order, spelled, absent = (
            (late.keys, late.order, late.spelled, late.absent) if late else ((), (), (), ())
        )
        casts = [
            _cast(column, is_spelled=column.name in spelled)
            for column in columns(table, self._metrics)
            if column.name not in absent
        ]
        select = f"SELECT {', '.join([*casts, *keys])} FROM {relation}"
        return ordered_batches(connection, table, self._metrics, select, order, absent)

    def _write(
        self,
        table: str,
        number: int,
        batches: Iterable[pa.RecordBatch],
        *,
        finished: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch,
        even_if_empty: bool = False,
        is_alone: bool = True,
    ) -> None:
        """Write a part; one without rows is removed, unless `even_if_empty`."""
        path = self._open_folder() / table / f"part-{number:05}.parquet"
        schema = arrow_schema(table, self._metrics, (CONTENT_HASH,) if table == "episodes" else ())
        n_rows = write_part(path, schema, batches, finished, is_alone=is_alone)
        if n_rows == 0 and not even_if_empty:
            path.unlink()
            return
        with writing(path):
            self._parts.append(
                Part(
                    path=f"{table}/{path.name}",
                    sha256=sha256_file(path),
                    n_rows=n_rows,
                    n_bytes=path.stat().st_size,
                )
            )


def write_episodes(
    goal: Path,
    episodes: Iterable[Episode],
    *,
    kind: str,
    source: JsonObject | None = None,
    as_of: datetime | None = None,
    lineage: Sequence[LineageEntry] = (),
    metrics: Sequence[Metric] | None = None,
) -> Manifest:
    """Write a store from `Episode` objects, one at a time: memory does not grow with their number.

    Args:
        goal: The folder to write.
        episodes: In any order; each id once.
        kind: The command that makes it.
        source: Source of the episodes; never a password.
        as_of: Time at which the source was read.
        lineage: The lineage, oldest entry first.
        metrics: The metrics that get a column; None for every metric that an episode has a value of.

    Raises:
        StoreError: `goal` exists, or the disk is full.
        DataError: Two episodes have one id, or a metric is a float in one and a boolean in another.
    """
    goal = place_of(goal).absolute()
    refuse_existing(goal)
    with Spool(goal) as spool:
        for episode in episodes:
            spool.add(episode)
        chosen = spool.metrics() if metrics is None else tuple(metrics)
        with StoreWriter(goal, kind=kind, metrics=chosen, source=source, as_of=as_of) as writer:
            for part in spool.parts(chosen):
                writer.add(spool.connection, **part)
            return writer.finish(lineage=lineage, connection=spool.connection)


def _name(part: Part) -> str:
    """Return the name of its file, which is the same for tables written together."""
    return part.path.rpartition("/")[2]


def _cast(column: Column, *, is_spelled: bool) -> str:
    name = quoted(column.name)
    if is_spelled:
        return f"CAST({name} AS VARCHAR) AS {name}"  # a cast to JSON would parse it again
    if column.is_closed:
        # the order of its fields is fixed: with a normalised spelling the text itself can be hashed
        return f"CAST(nullif(CAST(json(CAST({name} AS VARCHAR)) AS VARCHAR), 'null') AS JSON) AS {name}"
    return f"CAST({name} AS {column.sql_type}) AS {name}"


def _with_hashes(batches: Iterable[pa.RecordBatch], hashes: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield rows of `episodes` with their hashes."""
    for batch in batches:
        found = pc.index_in(batch.column("episode_id"), hashes.column("episode_id"))
        values = hashes.column("content_hash").take(found).combine_chunks()
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, values], names=[*batch.schema.names, CONTENT_HASH.name]
        )


def _refuse_twins(metrics: Sequence[Metric]) -> None:
    """Refuse metrics whose names differ only by case, because DuckDB ignores the case of struct fields."""
    seen: dict[tuple[str, str], str] = {}
    for metric in metrics:
        other = seen.setdefault((metric.level, metric.name.lower()), metric.name)
        if other is not metric.name:
            raise DataError(
                f"metrics {other!r} and {metric.name!r} differ at most by case: a store cannot keep both",
                hint="rename one of them",
            )
