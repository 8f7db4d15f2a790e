"""Read the chosen steps of a dataset in columns, some thousand at a time, with reasons not to learn some."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trajkit._core.address import readable
from trajkit.curation.rows.writers.part import RAW, PartSteps, bytes_per_step
from trajkit.errors import StoreError
from trajkit.formats.base import PlainText
from trajkit.schema import Purpose
from trajkit.store.chosen import Chosen
from trajkit.store.dataset import Dataset
from trajkit.store.engine import connect, first_line, interruptible, scan
from trajkit.store.reader import verify
from trajkit.store.view import create_views, full_steps

_BYTES_PER_CHUNK = 24_000_000
_MOST_STEPS = 20_000
_COST_OF_CHAINS = 8
_CHOSEN = ("episode_id", "n_steps", "purpose")


class Chunk(NamedTuple):
    """Some episodes of one part, whole."""

    part: Path
    """The file with their steps."""
    lowest_id: str
    """Smallest of their ids."""
    highest_id: str
    """Largest of their ids."""
    is_chained: bool
    """Whether some prompt keeps messages of the previous step."""


class Span(NamedTuple):
    """Neighbours in the order of episode ids."""

    lowest_id: str
    """The first of their ids."""
    highest_id: str
    """The last of their ids."""


class Steps:
    """The steps of the episodes that a dataset chooses. Use as a context manager.

    Args:
        dataset: The dataset.
        within: Only the episodes with ids from the first of these to the last; None for all.

    Raises:
        StoreError: A part is missing or changed.
    """

    def __init__(self, dataset: Dataset, within: Span | None = None) -> None:
        self._store = dataset.store
        self._has_all = not dataset.verbs and within is None
        # No text of a user runs in this connection: the dataset applies its filters in another one.
        if dataset.verbs:
            with Chosen(dataset.store, dataset.verbs) as chosen:
                self._chosen = chosen.columns(_CHOSEN)
        else:
            verify(self._store)
            with self._reading(self._opened):
                self._chosen = self._opened.sql(
                    f"SELECT {', '.join(_CHOSEN)} FROM episodes ORDER BY episode_id"
                ).to_arrow_table()
        if within is not None:
            ids = pc.field("episode_id")
            mine = (ids >= within.lowest_id) & (ids <= within.highest_id)
            self._chosen = self._chosen.filter(mine)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if "_opened" in vars(self):
            self._opened.close()

    @functools.cached_property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """Has the views of the store, and the table `chosen`."""
        self._opened.register("ids", self._chosen)
        self._opened.execute("CREATE TABLE chosen AS SELECT * FROM ids")
        self._opened.unregister("ids")
        return self._opened

    @functools.cached_property
    def _opened(self) -> duckdb.DuckDBPyConnection:
        connection = connect()
        connection.execute("SET arrow_large_buffer_size = true")
        create_views(connection, self._store)
        return connection

    @property
    def n_episodes(self) -> int:
        """Number of chosen episodes."""
        return self._chosen.num_rows

    @property
    def n_steps(self) -> int:
        """Number of their steps."""
        return int(pc.sum(self._chosen.column("n_steps")).as_py() or 0)

    @property
    def n_evaluation(self) -> int:
        """Number of chosen episodes that were played for evaluation."""
        counts: Any = pc.value_counts(self._chosen.column("purpose"))
        return sum(found["counts"] for found in counts.to_pylist() if found["values"] == Purpose.EVAL)

    def spans(self, n: int) -> list[Span]:
        """Cut the episodes, by their ids, into at most `n` spans of about as many steps each."""
        ordered = self._chosen.sort_by("episode_id")
        ids, sizes = ordered.column("episode_id"), ordered.column("n_steps").to_numpy()
        if not len(ids):
            return []
        numbers = (sizes.cumsum() - sizes) * n // max(1, sizes.sum())
        starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(ids)]
        return [Span(ids[a].as_py(), ids[b - 1].as_py()) for a, b in itertools.pairwise(starts)]

    def tables(self, plain: PlainText | None, *, merges: bool) -> Iterator[pa.Table]:
        """Yield the steps, a bounded number at a time; the steps of an episode are adjacent and in order.

        The columns are `episode_id, step_index, inference_id, loss_weight, reason, line, is_raw,
        n_characters`, and those that Python needs if `is_raw`. `reason` says why a step is not learned. A
        line (with its line break) is at the last step that it teaches. `n_characters` is the size of the
        conversation up to the step, null if no rows are merged.

        Args:
            plain: How the format writes rows of plain text; None if Python writes all.
            merges: Whether a row has all learned answers of a conversation, or one.

        Raises:
            StoreError: The parts cannot be read.
        """
        for path in self._store.parts("steps"):
            with self._reading():
                tables = PartSteps(path, None if self._has_all else self._ids).tables(plain, merges=merges)
            while True:
                with self._reading():
                    table = next(tables, None)
                if table is None:
                    break
                yield table
            # the C library keeps freed memory between small pieces, and each part would add as much again
            pa.default_memory_pool().release_unused()

    @functools.cached_property
    def _ids(self) -> pa.Array[Any]:
        return self._chosen.column("episode_id").combine_chunks()

    def chunks(self, columns: Collection[str] = RAW) -> Iterator[Chunk]:
        """Yield the chosen episodes in chunks, part by part, so that each file is read once.

        Args:
            columns: The columns of steps whose size bounds a chunk.
        """
        for part in self._store.parts("steps"):
            with self._reading(self.connection):
                found = self.connection.execute(
                    f"SELECT episode_id, count(*), max(n_prompt_kept) > 0 FROM {scan([part])} "
                    "SEMI JOIN chosen USING (episode_id) GROUP BY episode_id ORDER BY episode_id"
                ).fetchall()
            with pq.ParquetFile(readable(part)) as file:
                n_bytes = bytes_per_step(file, columns)
            yield from _cut(part, found, n_bytes)

    def table(self, chunk: Chunk, columns: Sequence[str]) -> pa.Table:
        """Return a line, with its line break, for each step, by episode and position.

        Args:
            chunk: The episodes.
            columns: SQL expressions with their names, over `s` (`steps_full`) and `e` (`episodes`).
        """
        steps = self.rows_of(chunk)
        source = full_steps(steps) if chunk.is_chained else f"SELECT *, messages AS prompt FROM {steps}"
        sql = (
            f"SELECT s.episode_id, CAST(to_json(struct_pack({', '.join(columns)})) AS VARCHAR) || chr(10) "
            f"AS line, s.step_index FROM ({source}) s JOIN episodes e USING (episode_id) "
            "ORDER BY s.episode_id, s.step_index"
        )
        table = self.read(sql, chunk)
        # sorting the texts would cost as much as making them
        order = pc.sort_indices(table, [("episode_id", "ascending"), ("step_index", "ascending")])
        in_order: bool = pc.all(pc.equal(order, pa.array(range(len(order)), pa.uint64()))).as_py()
        return table if in_order else table.take(order)

    def read(self, sql: str, chunk: Chunk | None = None) -> pa.Table:
        """Return the rows of a SELECT, which may read `rows_of` the chunk.

        Raises:
            StoreError: The parts cannot be read.
        """
        with self._reading(self.connection):
            table: pa.Table = self.connection.sql(sql, params=_bounds(chunk)).to_arrow_table()
        return table

    def run(self, sql: str, chunk: Chunk) -> None:
        """Run a statement, which may read `rows_of` the chunk.

        Raises:
            StoreError: The parts cannot be read.
        """
        with self._reading(self.connection):
            self.connection.execute(sql, _bounds(chunk))

    def rows_of(self, chunk: Chunk) -> str:
        """Return SQL of the chosen rows of a chunk, for `read` and `run`."""
        # the bounds let DuckDB skip row groups without these episodes
        mine = "episode_id BETWEEN $lowest AND $highest AND episode_id IN (SELECT episode_id FROM chosen)"
        return f"(SELECT * FROM {scan([chunk.part])} WHERE {mine})"

    @contextlib.contextmanager
    def _reading(self, *connections: duckdb.DuckDBPyConnection) -> Iterator[None]:
        try:
            with interruptible(*connections):
                yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise StoreError(f"{self._store.path} could not be read: {first_line(error)}") from error


def _cut(part: Path, found: Sequence[tuple[str, int, bool]], n_bytes: float) -> Iterator[Chunk]:
    """Cut a part's episodes into chunks that fit into memory; chained ones count more, as they are longer."""
    most = min(_MOST_STEPS, _BYTES_PER_CHUNK / max(1.0, n_bytes))
    run: list[tuple[str, int, bool]] = []
    n_steps = 0
    for episode in found:
        run.append(episode)
        n_steps += episode[1] * (_COST_OF_CHAINS if episode[2] else 1)
        if n_steps >= most:
            yield _chunk(part, run)
            run, n_steps = [], 0
    if run:
        yield _chunk(part, run)


def _chunk(part: Path, run: Sequence[tuple[str, int, bool]]) -> Chunk:
    return Chunk(part, run[0][0], run[-1][0], any(is_chained for _, _, is_chained in run))


def _bounds(chunk: Chunk | None) -> dict[str, str]:
    return {} if chunk is None else {"lowest": chunk.lowest_id, "highest": chunk.highest_id}
