"""From a TensorZero database to a store: look, choose, count, pull what was chosen, assemble, write."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import duckdb
import pyarrow as pa

from trajkit._files import refuse_existing
from trajkit.environments import environment_info, known
from trajkit.schema import Left, Manifest
from trajkit.sources.choose import (
    LeveledCondition,
    choose,
    find_levels,
    kept_counts,
    left_by_reason,
    nothing_matched,
)
from trajkit.sources.request import ExportRequest, Tally, lineage_entry
from trajkit.sources.tensorzero import tables
from trajkit.sources.tensorzero.assemble import Assembly
from trajkit.sources.tensorzero.late import CALL_ROW, DESCRIBED, INPUT_ROW, described
from trajkit.sources.tensorzero.spool import Group, Spool
from trajkit.store.engine import interruptible, literal, writing
from trajkit.store.writer import Rows, StoreWriter

GROUP_STEPS = 20_000
"""Most steps that are assembled at once; more take more memory, fewer more time."""
GROUP_BYTES = 120_000_000
"""Most bytes of text that are assembled at once: long prompts make small groups."""
_BUCKETS_PER_GROUP = 4
"""The texts of one bucket are held at a time."""
_MAX_BUCKETS = 384
"""Each is an open file of two tables; where a process may have fewer files, there are fewer buckets."""
_SPARE_FILES = 64
_PATIENCE_S = 2.0
"""How long a failure waits for what was going on beside it: that may hang on a database that is gone."""

_THREADS = max(1, min(4, (os.cpu_count() or 2) // 2))  # one group is written while the next is assembled


class Progress(NamedTuple):
    """How far an export is."""

    what: str
    """What is being read or done now."""
    n_done: int
    """Rows so far."""
    n_total: int | None
    """Rows in all; None when that is not known before."""


def export(
    database: tables.Database,
    request: ExportRequest,
    goal: Path | None,
    *,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> tuple[Tally, Manifest | None]:
    """Bring the chosen episodes of a database into a new store.

    Memory hardly grows with the rows: only ids and scores are held for all, the texts for one bucket.

    Args:
        database: Where they are.
        request: Which of them.
        goal: The store to write; None to count only.
        on_progress: Told now and then how far it is.

    Returns:
        The tally, and the manifest of the store (None when there is no goal).

    Raises:
        QueryError: The request names something that is not there.
        NothingMatched: No episode is left.
        ServiceError: The database failed.
        StoreError: The goal exists, or cannot be written.
    """
    as_of = datetime.now(UTC)
    database.check(request)
    if goal is not None:
        refuse_existing(goal)
    with _workspace() as workspace, writing(workspace.folder, workspace.connection):
        tally, conditions = _choose(workspace.connection, database, request, on_progress)
        if tally.n_episodes_kept == 0:
            raise nothing_matched(workspace.connection, conditions, tally.left)
        if goal is None:
            return tally, None
        return _Export(workspace, database, request, on_progress).write(goal, tally, as_of)


class _Workspace(NamedTuple):
    """A connection and a folder that are gone afterwards."""

    connection: duckdb.DuckDBPyConnection
    folder: Path


@contextlib.contextmanager
def _workspace() -> Iterator[_Workspace]:
    with tempfile.TemporaryDirectory(prefix="trajkit-export-") as name, duckdb.connect() as connection:
        connection.execute(f"SET threads = {_THREADS}")
        connection.execute("SET preserve_insertion_order = false")
        connection.execute(f"SET temp_directory = {literal(str(Path(name) / 'spill'))}")
        yield _Workspace(connection, Path(name))


def _choose(
    connection: duckdb.DuckDBPyConnection,
    database: tables.Database,
    request: ExportRequest,
    on_progress: Callable[[Progress], None],
) -> tuple[Tally, list[LeveledCondition]]:
    """Read the ids and the scores, decide, and count."""
    scope = database.scope(request)
    n_index = scope.n_steps - scope.n_steps_other_time - scope.n_steps_other_name
    _load(
        connection,
        "step_index_of",
        _Count("reading ids", n_index, on_progress).of(database.index(request)),
        tables.INDEX,
        "* REPLACE (inference_id::UUID AS inference_id, episode_id::UUID AS episode_id)",
    )
    measured = database.measured(request) if request.metrics else iter(())
    as_uuid = "* REPLACE (target_id::UUID AS target_id)"
    _load(connection, "measured", measured, tables.MEASURED, as_uuid)
    _load(connection, "eval_target", database.eval_targets(), tables.EVAL_TARGETS, as_uuid)
    _load(connection, "abandoned", database.abandoned(), tables.ABANDONED, as_uuid)
    conditions = find_levels(connection, request, database.metrics() if request.metrics else {})
    choose(connection, request, conditions)
    n_episodes, n_steps = kept_counts(connection)
    named = (
        "other functions or variants"
        if request.functions or request.variants
        else "only TensorZero's own functions"
    )
    outside = (
        Left(reason="another time", n_episodes=scope.n_episodes_other_time, n_steps=scope.n_steps_other_time),
        Left(reason=named, n_episodes=scope.n_episodes_other_name, n_steps=scope.n_steps_other_name),
    )
    tally = Tally(
        n_episodes_seen=scope.n_episodes,
        n_episodes_kept=n_episodes,
        n_steps_seen=scope.n_steps,
        n_steps_kept=n_steps,
        left=(*(entry for entry in outside if entry.n_episodes), *left_by_reason(connection)),
    )
    return tally, conditions


class _Export:
    """The second half: everything is chosen, now it is brought over and written."""

    def __init__(
        self,
        workspace: _Workspace,
        database: tables.Database,
        request: ExportRequest,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._workspace = workspace
        self._connection = workspace.connection
        self._database = database
        self._request = request
        self._on_progress = on_progress

    def write(self, goal: Path, tally: Tally, as_of: datetime) -> tuple[Tally, Manifest]:
        n_buckets = self._count_buckets(tally)
        source = self._database.describe()
        inferences, calls = self._pull(tally, n_buckets)
        # in the order in which they are worked on: a group reads its own rows only
        self._connection.execute(
            f"""
            CREATE OR REPLACE TABLE chosen_step AS
            SELECT * EXCLUDE slot, slot::BIGINT * {n_buckets} // {tables.N_SLOTS} AS bucket
            FROM chosen_step ORDER BY bucket
            """
        )
        assembly = Assembly(
            self._connection,
            self._request,
            environments={env_id: environment_info(env_id) for env_id in known()},
            source=self._database.source_name,
            origin={"url": source["url"]},
        )
        metrics = assembly.metrics(self._database.metrics())
        masked: Counter[str] = Counter()
        with StoreWriter(goal, kind="export", metrics=metrics, source=source, as_of=as_of) as writer:
            with _Behind() as behind:
                for first in range(0, n_buckets, _BUCKETS_PER_GROUP):
                    self._on_progress(Progress("assembling", first, n_buckets))
                    numbers = range(first, min(first + _BUCKETS_PER_GROUP, n_buckets))
                    groups = Group(inferences, numbers, INPUT_ROW), Group(calls, numbers, CALL_ROW)
                    with self._connection.cursor() as connection, interruptible(connection):
                        relations = assembly.assemble(connection, *groups)
                        masked.update({entry.reason: entry.n_steps for entry in assembly.masked(connection)})
                        rows = writer.rows(connection, **relations._asdict()).held()
                    behind.write(writer, rows, groups)
                behind.finish()
            left = tuple(Left(reason=reason, n_steps=n_steps) for reason, n_steps in sorted(masked.items()))
            tally = tally.model_copy(update={"masked": left})
            return tally, writer.finish(lineage=[lineage_entry(self._request, tally)])

    def _count_buckets(self, tally: Tally) -> int:
        """In how many parts the steps are spooled: by their number, and by how long their texts are."""
        bytes_per_step = self._database.text_bytes() / max(tally.n_steps_seen, 1)
        by_size = math.ceil(tally.n_steps_kept * bytes_per_step / GROUP_BYTES)
        n_groups = max(math.ceil(tally.n_steps_kept / GROUP_STEPS), by_size)
        return min(n_groups * _BUCKETS_PER_GROUP, _MAX_BUCKETS, max(1, (_open_files() - _SPARE_FILES) // 2))

    def _pull(self, tally: Tally, n_buckets: int) -> tuple[Spool, Spool]:
        """Bring the rows of the chosen episodes, cut into buckets on the way."""
        everything = tally.n_episodes_kept == tally.n_episodes_seen
        kept = self._connection.sql("SELECT episode_id::VARCHAR AS episode_id FROM fate WHERE reason IS NULL")
        chosen = None if everything else kept.to_arrow_table().cast(tables.CHOSEN)
        inferences = Spool(self._workspace.folder, "inference", tables.INFERENCES, n_buckets)
        described_calls = pa.unify_schemas([tables.MODEL_INFERENCES, DESCRIBED])
        calls = Spool(self._workspace.folder, "model_inference", described_calls, n_buckets)
        count = _Count("reading inferences and model calls", 2 * tally.n_steps_kept, self._on_progress)
        # side by side: while one waits for the database the other one writes
        with _aside(lambda: inferences.fill(count.of(self._database.inferences(chosen, n_buckets))), count):
            calls.fill(map(described, count.of(self._database.model_inferences(chosen, n_buckets))))
        _load(
            self._connection,
            "feedback",
            _Count("reading feedback", None, self._on_progress).of(self._database.feedback(chosen)),
            tables.FEEDBACK,
            "* REPLACE (feedback_id::UUID AS feedback_id, target_id::UUID AS target_id)",
        )
        return inferences, calls


def _open_files() -> int:
    """How many files this process may have open at once."""
    if sys.platform == "win32":
        return 512
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_BUCKETS * 4 if limit == resource.RLIM_INFINITY else limit


@contextlib.contextmanager
def _aside(work: Callable[[], None], count: _Count) -> Iterator[None]:
    """Do something in a thread beside a block; what went wrong with it is raised at the block's end.

    A block that fails, or Ctrl-C, tells the streams to end and waits for the thread only a moment.
    """
    done: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 -- raised again at the block's end
            done.set_exception(error)
        else:
            done.set_result(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        with count.stopping_all():
            yield
            done.result()
    finally:
        thread.join(_PATIENCE_S)


class _Behind:
    """Writes a group in a thread while the next one is assembled; never more than one."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def write(self, writer: StoreWriter, rows: Rows, groups: tuple[Group, Group]) -> None:
        """Write a group when the one before is written; its files are gone then."""
        self.finish()
        self._pending = self._pool.submit(_write, writer, rows, groups)

    def finish(self) -> None:
        """Wait for the group that is being written; what went wrong with it is raised here."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()


def _write(writer: StoreWriter, rows: Rows, groups: tuple[Group, Group]) -> None:
    writer.write(rows)
    for group in groups:
        group.drop()


def _load(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    columns: str,
) -> None:
    """Make a table of what a database streams."""
    failures: list[BaseException] = []

    def noting() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except BaseException as error:
            failures.append(error)
            raise

    connection.register("incoming", pa.RecordBatchReader.from_batches(schema, noting()))
    try:
        connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT {columns} FROM incoming")
    except Exception:
        # what went wrong in the stream, not what DuckDB makes of it
        if failures:
            raise failures[0] from None
        raise
    connection.unregister("incoming")


class _Count:
    """Counts the rows of streams that are read at the same time; when one fails, the others end.

    Args:
        what: What is being read.
        n_total: Rows in all; None when that is not known before.
        on_progress: Told with every batch.
    """

    def __init__(self, what: str, n_total: int | None, on_progress: Callable[[Progress], None]) -> None:
        self._what = what
        self._n_total = n_total
        self._n_done = 0
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._has_failed = False
        on_progress(Progress(what, 0, n_total))

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches of one stream."""
        with self.stopping_all():
            for batch in batches:
                if self._has_failed:
                    return
                with self._lock:
                    self._n_done += batch.num_rows
                    self._on_progress(Progress(self._what, self._n_done, self._n_total))
                yield batch

    @contextlib.contextmanager
    def stopping_all(self) -> Iterator[None]:
        """Let the streams end when the block fails."""
        try:
            yield
        except BaseException:
            self._has_failed = True
            raise
