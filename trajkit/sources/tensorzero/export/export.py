"""Export a TensorZero database into a store: choose episodes, count, pull, assemble, write."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import duckdb
import pyarrow as pa

from trajkit._core.files import refuse_existing
from trajkit.environments import environment_info, known
from trajkit.errors import DataError
from trajkit.schema import Left, Manifest, Metric
from trajkit.schema.base import JsonObject
from trajkit.sources.choose import nothing_matched
from trajkit.sources.question import NO_QUESTION
from trajkit.sources.request import ExportRequest, Tally, lineage_entry
from trajkit.sources.tensorzero.connect.database import TensorZero
from trajkit.sources.tensorzero.connect.streams import OnProgress
from trajkit.sources.tensorzero.export.asked import Asked
from trajkit.sources.tensorzero.export.assemble import Assembly, Relations
from trajkit.sources.tensorzero.export.choose import (
    MANY_ROWS,
    N_CORES,
    Beginning,
    Choice,
    Workspace,
    begin,
    open_workspace,
)
from trajkit.sources.tensorzero.export.config import Snapshots
from trajkit.sources.tensorzero.export.grouping import groups_of
from trajkit.sources.tensorzero.export.pull import Pull, Pulled
from trajkit.sources.tensorzero.export.spool import Group, total
from trajkit.sources.tensorzero.export.texts.continued import WithoutHead
from trajkit.sources.tensorzero.export.texts.late import CALL_ROW, INPUT_ROW
from trajkit.sources.tensorzero.export.workers import Room, Running, Workers
from trajkit.sources.tensorzero.render.calls import Rerendering
from trajkit.sources.tensorzero.render.snapshots import TemplateSource
from trajkit.store.engine import interruptible, writing
from trajkit.store.writer import StoreWriter
from trajkit.store.writing.part import Rows

_SHOWN_UNREADABLE = 5

_LARGE_TABLES = ("chosen_step", "feedback", "scored_feedback")
"""The tables left at the end that have a row for each step, or each piece of feedback."""


def export(
    database: TensorZero,
    request: ExportRequest,
    goal: Path | None,
    *,
    on_progress: OnProgress = lambda what, n_done, n_total: None,
) -> tuple[Tally, Manifest | None]:
    """Export the chosen episodes of a database into a new store.

    Memory hardly grows with the rows: ids and scores are held for all episodes, texts for one bucket.

    Args:
        database: Where they are.
        request: Which of them.
        goal: The store to write; None to count only.
        on_progress: Called with the progress now and then.

    Returns:
        The tally, and the manifest of the store (None when there is no goal).

    Raises:
        QueryError: The request names something that does not exist.
        NothingMatched: No episode is left.
        ServiceError: The database failed.
        StoreError: The goal exists, or cannot be written.
    """
    as_of = _in_milliseconds(request.as_of or database.read_at or datetime.now(UTC))
    if database.read_at is not None:
        as_of = min(as_of, _in_milliseconds(database.read_at))
    if goal is not None:
        refuse_existing(goal)
    seen = request.model_copy(update={"as_of": as_of})
    with open_workspace() as opened, begin(database, seen) as beginning:
        workspace = opened()
        with writing(workspace.folder, workspace.connection):
            running, tally = _decide(workspace, database, beginning, on_progress)
            rerendering = running.rerendering()
            if goal is None:
                return tally, None
            return running.write(goal, tally, rerendering)


def _decide(
    workspace: Workspace,
    database: TensorZero,
    beginning: Beginning,
    on_progress: OnProgress,
) -> tuple[_Export, Tally]:
    """Make the table `fate`: the decision about each episode as of a time.

    Raises:
        QueryError: The request names something that does not exist.
        NothingMatched: No episode is left.
    """
    asked = Asked(beginning.request, database)
    choice = Choice(workspace, database, asked, beginning, on_progress)
    running = _Export(workspace, database, beginning.request, choice.list_steps, on_progress)
    question = NO_QUESTION if asked.is_late else asked.question
    tally = choice.decide(question)
    if asked.is_late and tally.n_episodes_kept:
        running.learn(asked, tally)
        question = asked.question
        tally = choice.decide(question)
    if tally.n_episodes_kept == 0:
        error = nothing_matched(workspace.connection, choice.conditions, tally.left, question)
        error.result = tally
        raise error
    return running, tally


def _in_milliseconds(moment: datetime) -> datetime:
    """Round a time to the precision of ids, so that the store records until when it was read."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


_T = TypeVar("_T")


class _Made(NamedTuple):
    """The result of a group."""

    rows: Rows
    masked: dict[str, int]
    """Steps that are context only, by reason."""


def _rows(writer: StoreWriter, connection: duckdb.DuckDBPyConnection, relations: Relations) -> _Made:
    rows = writer.rows(connection, **relations._asdict()).held()
    reasons = [batch.column("mask_reason").drop_null() for batch in rows.batches["steps"]]
    counted: Any = pa.chunked_array(reasons, pa.string()).value_counts()  # the stubs know no such struct
    return _Made(rows.released(), {entry["values"]: entry["counts"] for entry in counted.to_pylist()})


class _Export:
    """The second half of an export: pull the chosen episodes and write them."""

    def __init__(
        self,
        workspace: Workspace,
        database: TensorZero,
        request: ExportRequest,
        list_steps: Callable[[], None],
        on_progress: OnProgress,
    ) -> None:
        self._workspace = workspace
        self._connection = workspace.connection
        self._database = database
        self._request = request
        self._list_steps = list_steps
        self._on_progress = on_progress
        self._unreadable = workspace.unreadable
        self._pulled: Pulled | None = None
        self._running = Running()
        self._mending = threading.Lock()  # several groups are processed at a time

    @functools.cached_property
    def _source(self) -> JsonObject:
        return self._database.describe()

    def rerendering(self) -> Rerendering | None:
        """Renders prompts under another variant; None to keep them as they were sent."""
        request = self._request
        if request.template_variant is None:
            return None
        self._list_steps()
        file = None if request.template_config is None else Path(request.template_config)
        source = TemplateSource(self._database.snapshots(), file)
        return Rerendering(source, request.template_variant, self._connection)

    def learn(self, asked: Asked, tally: Tally) -> None:
        """Assemble all candidate episodes, to get the values that only their steps have."""
        pulled, assembly, _ = self._prepare(tally, self._list_steps)
        with self._group_threads():
            for number, groups in enumerate(self._groups(pulled, "looking")):
                self._assembled(pulled, assembly, groups, functools.partial(asked.note, number == 0))
        self._workspace.join_as_written(False)
        asked.find_out(self._connection)

    def write(self, goal: Path, tally: Tally, rerendering: Rerendering | None) -> tuple[Tally, Manifest]:
        """Write the chosen episodes."""
        pulled, assembly, metrics = self._prepare(tally, self._forget_what_was_not_chosen)
        masked: Counter[str] = Counter()
        with StoreWriter(
            goal, kind="export", metrics=metrics, source=self._source, as_of=self._request.as_of
        ) as writer:
            room = Room()

            def make(groups: tuple[Group, Group], number: int) -> dict[str, int]:
                with room.of(total(group.size for group in groups)):
                    made = self._assembled(pulled, assembly, groups, functools.partial(_rows, writer))
                writer.write(made.rows, number)
                for group in groups:
                    group.drop()
                return made.masked

            with self._group_threads(), Workers(self._running, masked.update) as workers:
                for groups in self._groups(pulled, "assembling", rerendering):
                    workers.give(functools.partial(make, groups, writer.next_number()))
            n_unreadable = self._refuse_unreadable()
            left = tuple(Left(reason=reason, n_steps=n_steps) for reason, n_steps in sorted(masked.items()))
            tally = tally.model_copy(update={"masked": left, "n_unreadable": n_unreadable})
            with self._workspace.without(_LARGE_TABLES, n_rows=tally.n_steps_kept) as connection:
                lineage = [lineage_entry(self._request, tally)]
                return tally, writer.finish(lineage=lineage, connection=connection)

    def _assembled(
        self,
        pulled: Pulled,
        assembly: Assembly,
        groups: tuple[Group, Group],
        finish: Callable[[duckdb.DuckDBPyConnection, Relations], _T],
    ) -> _T:
        """Assemble a group and process it; texts that are not valid JSON are left out.

        If a shortened text could not be verified, the whole text is fetched.
        """

        def once() -> _T:
            with self._running.cursor(self._connection) as connection, interruptible(connection):
                return finish(connection, assembly.assemble(connection, *groups))

        numbers = groups[0].numbers
        try:
            return once()
        except WithoutHead:
            with self._mending:
                pulled.make_whole(numbers)
                assembly.take_unreadable(self._unreadable.reasons)
            return self._assembled(pulled, assembly, groups, finish)
        except (duckdb.Error, pa.ArrowException, OSError):
            with self._mending:
                is_changed = pulled.make_whole(numbers)
                if not self._unreadable.mend(pulled.inferences, pulled.calls, numbers) and not is_changed:
                    raise
                assembly.take_unreadable(self._unreadable.reasons)
        return once()

    def _group_threads(self) -> AbstractContextManager[None]:
        """Threads for assembly, which shares the cores with other work."""
        return self._workspace.threads(max(1, min(4, N_CORES // 2)))

    def _refuse_unreadable(self) -> int:
        """Return the number of unreadable rows; raise when the request allows fewer."""
        if not self._unreadable.reasons:
            return 0
        rows = self._connection.execute(
            "SELECT inference_id::VARCHAR, reason FROM unreadable WHERE inference_id IN"
            " (SELECT inference_id FROM chosen_step UNION ALL SELECT feedback_id FROM feedback) ORDER BY 1"
        ).fetchall()
        if len(rows) > self._request.max_bad:
            shown = "; ".join(f"{row_id}: {reason}" for row_id, reason in rows[:_SHOWN_UNREADABLE])
            more = f"; and {len(rows) - _SHOWN_UNREADABLE:,} more" if len(rows) > _SHOWN_UNREADABLE else ""
            raise DataError(
                f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'} cannot be read ({shown}{more})",
                hint=f"--max-bad {len(rows)} keeps them, as steps that are not trained on",
            )
        return len(rows)

    def _forget_what_was_not_chosen(self) -> None:
        """List the steps, and drop the tables as long as the database: they are not needed from here on."""
        self._list_steps()
        self._connection.execute("DROP TABLE IF EXISTS step_index_of")

    def _prepare(self, tally: Tally, list_steps: Callable[[], None]) -> tuple[Pulled, Assembly, list[Metric]]:
        """Pull the rows, unless that was done before, and prepare to assemble the chosen ones.

        Few steps are listed while rows arrive; many before, when nothing else is in memory.
        """
        if tally.n_steps_kept >= MANY_ROWS:
            with self._workspace.threads(N_CORES):
                list_steps()
        if self._pulled is None:
            pull = Pull(self._workspace, self._database, self._request, list_steps, self._on_progress)
            self._pulled, (assembly, metrics) = pull.rows(tally, self._assembly)
            assembly.take_unreadable(self._unreadable.reasons)
        else:
            list_steps()
            assembly, metrics = self._assembly()
        self._workspace.join_as_written(True)
        return self._pulled, assembly, metrics

    def _assembly(self) -> tuple[Assembly, list[Metric]]:
        """The assembly of the chosen episodes, and the metrics that were measured on them."""
        assembly = Assembly(
            self._connection,
            self._request,
            environments={env_id: environment_info(env_id) for env_id in known()},
            source=self._database.source_name,
            origin={"url": self._source["url"]},
            snapshots=Snapshots(self._database.snapshots),
            unreadable=self._unreadable.reasons,
        )
        return assembly, assembly.metrics(self._database.metrics())

    def _groups(
        self, pulled: Pulled, what: str, rerendering: Rerendering | None = None
    ) -> Iterator[tuple[Group, Group]]:
        """The groups that are assembled at once, one after another."""
        for numbers in groups_of(pulled.inferences, pulled.calls):
            self._on_progress(what, numbers[0], pulled.inferences.n_buckets)
            if rerendering is not None:
                for number in numbers:
                    rerendering.apply(self._connection, pulled.inferences, pulled.calls, number)
            yield Group(pulled.inferences, numbers, INPUT_ROW), Group(pulled.calls, numbers, CALL_ROW)
