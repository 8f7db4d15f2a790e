"""Write a store: parts first, the checks, the manifest last, then the folder takes its name."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb

import trajkit
from trajkit._files import refuse_existing, sha256_file, temporary_beside, write_text
from trajkit.errors import DataError, StoreError
from trajkit.schema import Counts, Episode, LineageEntry, Manifest, Metric, Part
from trajkit.schema.base import JsonObject
from trajkit.store.check import check
from trajkit.store.digest import content_hashes, store_digest
from trajkit.store.engine import connect, literal, scan, writing
from trajkit.store.layout import CONTENT_HASH, MANIFEST_NAME, columns, quoted
from trajkit.store.spool import Spool

# Small enough to read one episode cheaply; files are within 1% of those with 8192 rows (measured).
_ROW_GROUP = 4096
_ORDER = {
    "episodes": ("episode_id",),
    "steps": ("episode_id", "step_index"),
    "feedback": ("episode_id", "feedback_id"),
}


class StoreWriter:
    """Writes one store. Use as a context manager; without `finish()` nothing is left behind.

    Args:
        goal: The folder that exists afterwards. It must not exist before.
        kind: What made it, such as `rollout` or `export`.
        metrics: The metrics that get a column.
        source: Where the episodes came from; never a password.
        as_of: The newest moment the source was read at.
        split: Which side of a split it is.

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
        self._goal = Path(goal).absolute()
        self._metrics = tuple(sorted(metrics, key=lambda metric: (metric.level, metric.name)))
        self._facts = {"kind": kind, "source": source or {}, "as_of": as_of, "split": split}
        self._folder: Path | None = None
        self._parts: list[Part] = []
        self._numbers = itertools.count()  # next() is atomic: parts may be added from several threads
        _refuse_twins(self._metrics)

    def __enter__(self) -> Self:
        refuse_existing(self._goal)
        folder = temporary_beside(self._goal)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
            self._folder = folder
            for table in _ORDER:
                (folder / table).mkdir()
        except OSError as error:
            self._discard()
            raise StoreError(f"{self._goal} cannot be written: {error.strerror or error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._discard()

    def add(self, connection: duckdb.DuckDBPyConnection, *, episodes: str, steps: str, feedback: str) -> None:
        """Write whole episodes as one part of each table. Several threads may, each with a cursor of its own.

        Each relation is read once, sorted by DuckDB and written by columns. The memory it takes is that of
        sorting the part, so what does not fit comes in several calls.

        Args:
            connection: Holds the relations; no result of it may be open.
            episodes: Name of a table or view, or a SELECT in brackets, with the columns of the layout by
                name, in any order, of types that can be cast to the layout's.
            steps: The same for the steps of these episodes, all of them.
            feedback: The same for the feedback on these episodes.

        Raises:
            StoreError: The disk is full, or the folder cannot be written.
            DataError: A column is missing, or a value does not fit its column.
        """
        number = next(self._numbers)
        written = {
            "steps": self._write(connection, "steps", self._select("steps", steps), number),
            "feedback": self._write(connection, "feedback", self._select("feedback", feedback), number),
        }
        hashed = content_hashes(
            self._metrics,
            episodes=f"({self._select('episodes', episodes)})",
            **{table: f"(SELECT * FROM {scan([path])})" for table, path in written.items()},
        )
        written["episodes"] = self._write(connection, "episodes", hashed, number)
        for table in _ORDER:
            self._keep(connection, table, written[table])

    def finish(self, *, lineage: Sequence[LineageEntry] = ()) -> Manifest:
        """Check everything, write the manifest and give the folder its name.

        Args:
            lineage: What was done, oldest first.

        Raises:
            DataError: What was added is not a store: an episode twice, steps or feedback without their
                episode, steps missing, a value that no episode may have.
            StoreError: The disk is full, or the goal appeared meanwhile.
        """
        folder = self._open_folder()
        with writing(self._goal), connect(memory_limit="1GB", spill=folder / "spill") as connection:
            for table in _ORDER:
                if not any(part.path.startswith(f"{table}/") for part in self._parts):
                    self._write_empty(connection, table)
                paths = [folder / part.path for part in self._parts if part.path.startswith(f"{table}/")]
                connection.execute(f"CREATE VIEW {table} AS SELECT * FROM {scan(paths)}")
            check(connection, self._metrics)
            digest = store_digest(connection, "episodes")
        shutil.rmtree(folder / "spill", ignore_errors=True)
        manifest = self._manifest(digest, lineage)
        with writing(self._goal):
            write_text(folder / MANIFEST_NAME, manifest.model_dump_json(indent=2) + "\n")
            refuse_existing(self._goal)
            folder.replace(self._goal)
        self._folder = None
        return manifest

    def _manifest(self, digest: str, lineage: Sequence[LineageEntry]) -> Manifest:
        rows = dict.fromkeys(_ORDER, 0)
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

    def _select(self, table: str, relation: str) -> str:
        casts = ", ".join(
            f"CAST({quoted(c.name)} AS {c.sql_type}) AS {quoted(c.name)}"
            for c in columns(table, self._metrics)
        )
        return f"SELECT {casts} FROM {relation}"

    def _write(self, connection: duckdb.DuckDBPyConnection, table: str, select: str, number: int) -> Path:
        path = self._open_folder() / table / f"part-{number:05}.parquet"
        order = ", ".join(_ORDER[table])
        with writing(path):
            connection.execute(
                f"COPY (SELECT * FROM ({select}) ORDER BY {order}) TO {literal(str(path))} "
                f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROW_GROUP})"
            )
        return path

    def _write_empty(self, connection: duckdb.DuckDBPyConnection, table: str) -> None:
        extra = (CONTENT_HASH,) if table == "episodes" else ()
        nulls = ", ".join(
            f"CAST(NULL AS {c.sql_type}) AS {quoted(c.name)}"
            for c in (*columns(table, self._metrics), *extra)
        )
        path = self._write(connection, table, f"SELECT {nulls} WHERE false", 0)
        self._record(connection, table, path)

    def _keep(self, connection: duckdb.DuckDBPyConnection, table: str, path: Path) -> None:
        """Record a part, or remove it when it holds no row."""
        if not self._record(connection, table, path, at_least=1):
            path.unlink()

    def _record(
        self, connection: duckdb.DuckDBPyConnection, table: str, path: Path, *, at_least: int = 0
    ) -> bool:
        with writing(path):
            counted = connection.execute(
                f"SELECT sum(num_rows) FROM parquet_file_metadata({literal(str(path))})"
            ).fetchone()
            n_rows = int(counted[0]) if counted else 0
            if n_rows < at_least:
                return False
            name = f"{table}/{path.name}"
            self._parts.append(
                Part(path=name, sha256=sha256_file(path), n_rows=n_rows, n_bytes=path.stat().st_size)
            )
        return True


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
    """Write a store from `Episode` objects, taken one at a time: memory does not grow with their number.

    Args:
        goal: The folder that exists afterwards.
        episodes: Any order; each id once.
        kind: What made it.
        source: Where they came from; never a password.
        as_of: The newest moment the source was read at.
        lineage: What was done, oldest first.
        metrics: The metrics that get a column; None for every metric that an episode has a value for.

    Raises:
        StoreError: `goal` exists, or the disk is full.
        DataError: Two episodes have one id, or a metric is a number in one and a yes or no in another.
    """
    goal = Path(goal).absolute()
    refuse_existing(goal)
    with Spool(goal) as spool:
        for episode in episodes:
            spool.add(episode)
        chosen = spool.metrics() if metrics is None else tuple(metrics)
        with StoreWriter(goal, kind=kind, metrics=chosen, source=source, as_of=as_of) as writer:
            for part in spool.parts(chosen):
                writer.add(spool.connection, **part._asdict())
            return writer.finish(lineage=lineage)


def _refuse_twins(metrics: Sequence[Metric]) -> None:
    """DuckDB compares the fields of a struct without regard to case."""
    seen: dict[tuple[str, str], str] = {}
    for metric in metrics:
        other = seen.setdefault((metric.level, metric.name.lower()), metric.name)
        if other is not metric.name:
            raise DataError(
                f"metrics {other!r} and {metric.name!r} differ at most by case: a store cannot keep both",
                hint="rename one of them",
            )
