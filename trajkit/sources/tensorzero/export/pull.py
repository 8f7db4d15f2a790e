"""Pull the rows of the chosen episodes and keep them on disk until they are assembled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import pyarrow as pa

from trajkit.sources.request import ExportRequest, Tally
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.connect.database import TensorZero
from trajkit.sources.tensorzero.connect.streams import Count, OnProgress, aside, leave_copies, load
from trajkit.sources.tensorzero.export.choose import Workspace
from trajkit.sources.tensorzero.export.grouping import count_buckets
from trajkit.sources.tensorzero.export.spool import Spool
from trajkit.sources.tensorzero.export.texts.headless import Headless, Reading
from trajkit.sources.tensorzero.export.texts.heads import LONG_BYTES, LeftOut, what_to_leave_out
from trajkit.sources.tensorzero.export.texts.late import (
    DESCRIBED,
    described,
    without_inputs,
    without_plain_prompts,
)
from trajkit.sources.tensorzero.export.texts.observed import OBSERVATION, Observing
from trajkit.sources.tensorzero.export.texts.raw_prompts import WithoutPrompt

_LEAST_LEFT = 0.2
"""Least share of the texts to size buckets for, even if more of them is left out."""

_T = TypeVar("_T")


class Pulled(NamedTuple):
    """The rows of the candidate episodes, on disk."""

    inferences: Spool
    calls: Spool
    headless: Headless | None
    """Fetches the rest of texts that came without their heads; None if all are whole."""

    def make_whole(self, numbers: Sequence[int]) -> bool:
        """Make every text of some buckets whole; return whether one was not."""
        return self.headless is not None and self.headless.make_whole(numbers)


def _later(make: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """A stream that is requested when it is read: the database may have to answer other queries first."""
    yield from make()


class Pull:
    """Pulls the rows of the chosen episodes.

    Args:
        workspace: Holds `fate`; gets `feedback` and `task_of`.
        database: Where they are.
        request: With an as-of time.
        list_steps: Makes `chosen_step`, if it does not exist yet.
        on_progress: Told now and then how far it is.
    """

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

    def rows(self, tally: Tally, meanwhile: Callable[[], _T]) -> tuple[Pulled, _T]:
        """Pull the rows of the counted episodes into buckets.

        Args:
            tally: The tally of the choice.
            meanwhile: Uses `feedback` and `chosen_step`, while inferences may still arrive.

        Returns:
            The rows, and the result of `meanwhile`.
        """
        text_bytes = self._database.text_bytes() * tally.n_steps_kept / max(tally.n_steps_seen, 1)
        everything = tally.n_episodes_kept == tally.n_episodes_seen
        kept = self._connection.sql("SELECT episode_id::VARCHAR AS episode_id FROM fate WHERE reason IS NULL")
        chosen = None if everything else kept.to_arrow_table().cast(tables.CHOSEN)
        left_out = self._left_out(chosen, text_bytes / max(tally.n_steps_kept, 1))
        if left_out is not None:
            # unusual texts are fetched whole after all, and must also fit
            text_bytes = max(text_bytes - left_out.n_bytes, text_bytes * _LEAST_LEFT)
        n_buckets = count_buckets(tally.n_steps_kept, text_bytes)

        def narrow(count: Count) -> _T:
            self._list_steps()
            self._feedback(chosen, Count("reading feedback", None, count.then))
            return meanwhile()

        return self._wide(chosen, n_buckets, left_out, tally, narrow)

    def _left_out(self, chosen: pa.Table | None, bytes_per_step: float) -> LeftOut | None:
        """The parts of long texts to leave out; a prompt that is rendered again needs the whole input."""
        heads = self._database.heads
        if heads is None or bytes_per_step < LONG_BYTES or self._request.template_variant is not None:
            return None
        self._list_steps()
        return what_to_leave_out(self._connection, heads, chosen, self._request, self._as_text)

    def _wide(
        self,
        chosen: pa.Table | None,
        n_buckets: int,
        left_out: LeftOut | None,
        tally: Tally,
        narrow: Callable[[Count], _T],
    ) -> tuple[Pulled, _T]:
        folder, unreadable = self._workspace.folder, self._workspace.unreadable
        observing = Observing(self._connection, self._request, unreadable)
        heads = None if left_out is None else self._database.heads
        given = (chosen, n_buckets, self._request)
        if left_out is None or heads is None:
            are_bytes = self._database.has_id_bytes
            of_inferences = tables.INFERENCES_OF_BYTES if are_bytes else tables.INFERENCES
            of_calls = tables.MODEL_INFERENCES_OF_BYTES if are_bytes else tables.MODEL_INFERENCES
            inference_stream = self._database.inferences(*given)
            call_stream = _later(functools.partial(self._database.model_inferences, *given))
        else:
            of_inferences, of_calls = tables.SHORT_INFERENCES, tables.HEADLESS_CALLS
            inference_stream = heads.inferences(*given, are_short=left_out.are_inputs_short)
            call_stream = _later(functools.partial(heads.model_inferences, *given, left_out.heads))
        observed = pa.schema([*of_inferences, OBSERVATION])
        inferences = Spool(folder, "inference", observed, n_buckets, without_inputs)
        of_described = pa.unify_schemas([of_calls, DESCRIBED])
        calls = Spool(folder, "model_inference", of_described, n_buckets, without_plain_prompts)
        count = Count("reading inferences and model calls", 2 * tally.n_steps_kept, self._on_progress)
        without_prompt = WithoutPrompt()
        # side by side: while one waits for the database the other one writes
        with aside(lambda: inferences.fill(observing.of(self._as_text(count.of(inference_stream)))), count):
            calls.fill(without_prompt.noting(map(described, self._as_text(count.of(call_stream)))))
            made = narrow(count)
        without_prompt.fill(self._database, calls)
        headless = None
        if heads is not None:
            reading = Reading(unreadable, self._as_text, observing)
            headless = Headless(heads, inferences, calls, folder=folder, reading=reading)
            headless.prove(self._connection)
        return Pulled(inferences, calls, headless), made

    def _feedback(self, chosen: pa.Table | None, count: Count) -> None:
        # in this thread: DuckDB waits for the server, and only Ctrl-C can stop that
        load(
            self._connection,
            "feedback",
            self._as_text(count.of(self._database.feedback(chosen, self._request)), "feedback_id"),
            tables.FEEDBACK,
            "* REPLACE (feedback_id::UUID AS feedback_id, target_id::UUID AS target_id)",
        )
        leave_copies(self._connection, "feedback", "feedback_id")
        # only the episodes of evaluations have a task of their own
        tasks = self._database.tasks() if self._request.include_eval else iter(())
        load(self._connection, "task_of", tasks, tables.TASKS, "* REPLACE (episode_id::UUID AS episode_id)")

    def _as_text(
        self, batches: Iterator[pa.RecordBatch], key: str = "inference_id"
    ) -> Iterator[pa.RecordBatch]:
        return self._workspace.unreadable.as_text(batches, key)
