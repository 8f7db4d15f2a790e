"""Read the narrow columns and decide which episodes to export: the first half of an export."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa

from trajkit.schema import Left
from trajkit.sources.choose import choose, find_levels, kept_counts, left_by_reason, list_steps
from trajkit.sources.question import Question
from trajkit.sources.request import ExportRequest, Tally, Targets
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.connect.background import ahead
from trajkit.sources.tensorzero.connect.database import TensorZero
from trajkit.sources.tensorzero.connect.slot import slots_of
from trajkit.sources.tensorzero.connect.streams import Count, OnProgress, leave_copies, load
from trajkit.sources.tensorzero.export.after import find_unchanged, new_feedback, since_then
from trajkit.sources.tensorzero.export.asked import Asked
from trajkit.sources.tensorzero.export.read_sql import read_sql
from trajkit.sources.tensorzero.export.unreadable import Unreadable
from trajkit.store.engine import literal, parsed
from trajkit.store.layout import quoted

N_CORES = os.cpu_count() or 2

LATER = "logged after the as-of time"
OTHER_TIME = "another time"
OTHER_NAME = "other functions or variants"
ONLY_OWN_NAMES = "only TensorZero's own functions"
OTHER_SHARD = "another shard"
COPIES = "stored more than once"

_BATCHES_AHEAD = 4

MANY_ROWS = 250_000
"""From this number of rows on, memory matters more than tens of milliseconds."""


class Workspace(NamedTuple):
    """A temporary connection and folder, and the rows that could not be read meanwhile.

    The connection has the macros, and one thread, which reads the streams: DuckDB would let another
    thread wait for a silent server, where Ctrl-C does not work.
    """

    connection: duckdb.DuckDBPyConnection
    folder: Path
    unreadable: Unreadable

    @contextlib.contextmanager
    def threads(self, n_threads: int) -> Iterator[None]:
        """Let queries use this many threads within a block, which reads no stream."""
        self.connection.execute(f"SET threads = {n_threads}")
        try:
            yield
        finally:
            self.connection.execute("SET threads = 1")

    def join_as_written(self, is_wanted: bool) -> None:
        """Run joins as written, with the right side held in memory; else as DuckDB chooses.

        DuckDB does not know the number of Arrow rows, assumes few, and would hold those,
        however wide they are.
        """
        kept = "'join_order,build_side_probe_side'" if is_wanted else "''"
        self.connection.execute(f"SET disabled_optimizers = {kept}")

    @contextlib.contextmanager
    def without(self, names: Sequence[str], *, n_rows: int) -> Iterator[duckdb.DuckDBPyConnection]:
        """Lend the connection to other work in a block, with the usual joins: a new one would take 25 ms.

        Args:
            names: Tables that are dropped.
            n_rows: Number of rows; many rows use all cores.
        """
        for name in names:
            self.connection.execute(f"DROP TABLE {quoted(name)}")
        self.join_as_written(False)
        if n_rows < MANY_ROWS:
            yield self.connection
            return
        with self.threads(N_CORES):
            yield self.connection


@contextlib.contextmanager
def open_workspace() -> Iterator[Callable[[], Workspace]]:
    """Make a workspace for a block, in a thread; the function given to the block waits for it."""
    with tempfile.TemporaryDirectory(prefix="trajkit-export-") as name, ThreadPoolExecutor(1) as pool:
        making = pool.submit(_connected, Path(name) / "spill")
        unreadable = Unreadable()
        try:
            yield lambda: Workspace(making.result(), Path(name), unreadable)
        finally:
            making.result().close()


def _connected(spill: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute("SET preserve_insertion_order = false")
    connection.execute(f"SET temp_directory = {literal(str(spill))}")
    for statement in (*parsed(read_sql("macros")), *parsed(read_sql("step_macros"))):
        connection.execute(statement)
    return connection


class Beginning(NamedTuple):
    """The first answers of a database to a request."""

    request: ExportRequest
    """With an as-of time."""
    scope: tables.Scope
    """What there is."""
    ids: Iterator[pa.RecordBatch]
    """The stream of `TensorZero.index`, already being read."""


@contextlib.contextmanager
def begin(database: TensorZero, request: ExportRequest) -> Iterator[Beginning]:
    """Ask the database what a request needs first, for the time of a block; ids stream meanwhile.

    Raises:
        QueryError: The request names something that does not exist.
        ServiceError: The database failed.
    """
    database.check(request)
    with ahead(database.index(request), _BATCHES_AHEAD) as index:
        yield Beginning(request, database.scope(request), index)


class Choice:
    """The narrow columns, and the decision on which episodes to export.

    Args:
        workspace: Where the tables go.
        database: Where the episodes are.
        asked: The conditions and orders of the request.
        beginning: The first answers of the database.
        on_progress: Called with the progress now and then.
    """

    def __init__(
        self,
        workspace: Workspace,
        database: TensorZero,
        asked: Asked,
        beginning: Beginning,
        on_progress: OnProgress,
    ) -> None:
        self._workspace = workspace
        self._connection = connection = workspace.connection
        self._unreadable = workspace.unreadable
        self._request = request = beginning.request
        self._scope = beginning.scope
        self._are_steps_listed = False
        self._read(database, asked, beginning.ids, on_progress)
        self.conditions = find_levels(connection, request, database.metrics() if request.metrics else {})
        if not asked.is_late:
            asked.find_out(connection)

    def _read(
        self,
        database: TensorZero,
        asked: Asked,
        index: Iterator[pa.RecordBatch],
        on_progress: OnProgress,
    ) -> None:
        """Load the scores, the tags and the ids."""
        wider = asked.wider_request
        measured = database.measured(wider) if wider.metrics else iter(())
        are_shown = self._request.targets == Targets.DEMONSTRATION
        demonstrated = database.demonstrated(self._request) if are_shown else iter(())
        tag_values = self._unreadable.as_text(asked.tag_values(), "inference_id")
        for table, batches, schema, key in (
            ("measured", measured, tables.MEASURED, "target_id"),
            ("eval_target", database.eval_targets(self._request), tables.EVAL_TARGETS, "target_id"),
            ("abandoned", database.abandoned(self._request), tables.ABANDONED, "target_id"),
            ("tag_value", tag_values, tables.TAG_VALUES, "inference_id"),
            ("demonstrated", demonstrated, tables.DEMONSTRATED, "target_id"),
        ):
            load(self._connection, table, batches, schema, f"* REPLACE ({key}::UUID AS {key})")
        load(
            self._connection,
            "logged_since",
            new_feedback(database, self._request),
            tables.NEW_FEEDBACK,
            "feedback_id::UUID AS feedback_id, target_id::UUID AS target_id",
        )
        # last, because it streams meanwhile
        n_index = self._scope.n_steps - self._scope.n_steps_other_time - self._scope.n_steps_other_name
        load(
            self._connection,
            "step_index_of",
            self._unreadable.as_text(Count("reading ids", n_index, on_progress).of(index), "inference_id"),
            tables.INDEX,
            "* REPLACE (inference_id::UUID AS inference_id, episode_id::UUID AS episode_id)",
        )
        asked.check_tags(self._connection)
        self._other_shards = self._leave_other_shards()
        self._n_copies = leave_copies(self._connection, "step_index_of", "inference_id")
        find_unchanged(self._connection, self._request)

    def _leave_other_shards(self) -> tuple[int, int]:
        """Drop the steps outside the requested shard; return the number of episodes and steps dropped."""
        shard, scope = self._request.shard, self._scope
        if shard is None:
            return 0, 0
        first, last = slots_of(shard.number, shard.n)
        # this database could not leave them out itself
        self._connection.execute(f"DELETE FROM step_index_of WHERE slot NOT BETWEEN {first} AND {last}")
        ((n_episodes, n_steps),) = self._connection.execute(
            "SELECT count(DISTINCT episode_id), count(*) FROM step_index_of"
        ).fetchall()
        n_others = scope.n_episodes - scope.n_episodes_other_time - scope.n_episodes_other_name - n_episodes
        return n_others, scope.n_steps - scope.n_steps_other_time - scope.n_steps_other_name - n_steps

    def decide(self, question: Question) -> Tally:
        """Make the table `fate`, and count."""
        with self._workspace.threads(N_CORES):
            choose(self._connection, self._request, self.conditions, question)
        self._are_steps_listed = False
        n_episodes, n_steps = kept_counts(self._connection)
        scope = self._scope
        named = OTHER_NAME if self._request.functions or self._request.variants else ONLY_OWN_NAMES
        outside = (
            (LATER, scope.n_episodes_later, scope.n_steps_later),
            (OTHER_TIME, scope.n_episodes_other_time, scope.n_steps_other_time),
            (named, scope.n_episodes_other_name, scope.n_steps_other_name),
            (OTHER_SHARD, *self._other_shards),
            (COPIES, 0, self._n_copies),
        )
        left = (Left(reason=reason, n_episodes=n, n_steps=m) for reason, n, m in outside if n or m)
        return Tally(
            n_episodes_seen=scope.n_episodes + scope.n_episodes_later,
            n_episodes_kept=n_episodes,
            n_steps_seen=scope.n_steps + scope.n_steps_later,
            n_steps_kept=n_steps,
            left=(*left, *left_by_reason(self._connection)),
            since=since_then(self._connection, self._request),
        )

    def list_steps(self) -> None:
        """Make the table `chosen_step` from the decision, unless it exists."""
        if not self._are_steps_listed:
            list_steps(self._connection)
            self._are_steps_listed = True
