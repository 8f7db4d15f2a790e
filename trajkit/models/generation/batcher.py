"""Answer requests of many coroutines together, on one thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from trajkit.errors import ServiceError
from trajkit.models.generation.ask import Ask, Said
from trajkit.models.generation.generate import SIDE_BY_SIDE, Batch, by_voice
from trajkit.models.generation.model import LocalModel
from trajkit.models.generation.row import Row, failed

_log = logging.getLogger(__name__)

_LATE_STEPS = 16
"""After this many steps of a batch the next batch may start beside it, so that one long answer does not
delay the short ones."""
_GATHER_S = 0.005
"""Seconds that a batch waits for the next expected request."""
_READERS = 8
"""Threads that build prompts and compile schemas, so that a long one delays no other answer."""


class _Waiting(NamedTuple):
    ask: Ask
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Said]
    on_text: Callable[[str], None] | None


_News = tuple[_Waiting, Callable[[], None]]
"""A waiting request, and a function that delivers its result or a partial text in its event loop."""


class Batcher:
    """Answers requests of many coroutines together, on its own thread.

    Args:
        model: The model. It is not closed at the end.
        side_by_side: Maximum number of concurrent answers; memory grows with it.
    """

    def __init__(self, model: LocalModel, *, side_by_side: int = SIDE_BY_SIDE) -> None:
        self.model = model
        self._side_by_side = side_by_side
        self.fault: str | None = None
        """Why the model has stopped answering; None while it works."""
        self._asked: queue.SimpleQueue[tuple[_Waiting, Row] | None] = queue.SimpleQueue()
        self._waiting: list[tuple[_Waiting, Row]] = []
        self._batches: list[Batch] = []
        self._of_row: dict[Row, _Waiting] = {}
        self._n_answered = 0
        """Answers since the last batch began, minus the new requests since then."""
        self._is_closed = self._is_drained = False
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="prompts")
        self._thread = threading.Thread(target=self._work, name="generation", daemon=True)
        self._thread.start()

    async def ask(self, ask: Ask, *, on_text: Callable[[str], None] | None = None) -> Said:
        """Send a request and wait for the answer. Generation stops when the caller is cancelled.

        Args:
            ask: The request.
            on_text: Called in the event loop with the whole text so far, each time that it grows.

        Raises:
            AskError: The model cannot answer this request.
            ServiceError: The batcher is closed, or the model failed.
        """
        if self._is_closed:
            raise ServiceError("the model no longer answers: it was closed")
        if self.fault is not None:
            raise ServiceError(self.fault)
        loop = asyncio.get_running_loop()
        waiting = _Waiting(ask, loop, loop.create_future(), on_text)
        self._readers.submit(self._read, waiting)
        return await waiting.future

    def close(self) -> None:
        """Finish the current requests, and end."""
        self._is_closed = True
        self._readers.shutdown()
        self._asked.put(None)
        self._thread.join()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def _read(self, waiting: _Waiting) -> None:
        """Build the row of a request and put it into the queue."""
        if waiting.future.cancelled():
            return
        try:
            row = Row(self.model.voice(waiting.ask.model), waiting.ask, is_heard=waiting.on_text is not None)
        except BaseException as error:  # noqa: BLE001 - any failure ends this request only
            self._tell([(waiting, _failure(waiting, failed(error)))])
            return
        self._asked.put((waiting, row))
        if self.fault is not None:
            self._fail_all(self.fault)

    def _work(self) -> None:
        try:
            while self._gather():
                self._begin()
                for batch in list(self._batches):
                    self._step(batch)
                self._batches = [batch for batch in self._batches if not batch.is_over]
        except BaseException as error:  # noqa: BLE001 - every waiting and later caller gets it
            self.fault = f"the model no longer answers: {type(error).__name__}: {error}"
            _log.error(self.fault, exc_info=error)
            self._fail_all(self.fault)

    def _fail_all(self, why: str) -> None:
        """Fail every waiting request."""
        waiting = [*self._of_row.values(), *(each for each, _ in self._waiting)]
        with contextlib.suppress(queue.Empty):
            while True:
                waiting += [each for each, _ in filter(None, [self._asked.get_nowait()])]
        self._tell([(each, _failure(each, ServiceError(why))) for each in waiting])

    def _gather(self) -> bool:
        """Take requests from the queue, and wait for one when idle. Returns False when all work is done.

        Callers that just got an answer usually send the next request at once. A short wait for them fills the
        batch, so that small batches do not alternate with large ones.
        """
        has_batches = bool(self._batches)
        if not has_batches and not self._waiting:
            if self._is_drained:
                return False
            self._take(self._asked.get())
        with contextlib.suppress(queue.Empty):
            while len(self._waiting) < self._side_by_side and not self._is_drained:
                is_full = has_batches or not self._n_answered
                self._take(self._asked.get_nowait() if is_full else self._asked.get(timeout=_GATHER_S))
        return bool(self._batches or self._waiting or not self._is_drained)

    def _take(self, request: tuple[_Waiting, Row] | None) -> None:
        if request is None:
            self._is_drained = True
            return
        self._n_answered = max(0, self._n_answered - 1)
        self._waiting.append(request)

    def _begin(self) -> None:
        """Start batches of the waiting rows, unless a batch of the same voice has only just begun."""
        n_running = sum(len(batch.rows) for batch in self._batches)
        fresh = {batch.voice for batch in self._batches if batch.n_steps < _LATE_STEPS}
        later: list[tuple[_Waiting, Row]] = []
        now: list[tuple[_Waiting, Row]] = []
        for waiting, row in self._waiting:
            has_room = n_running + len(now) < self._side_by_side and row.voice not in fresh
            (now if has_room else later).append((waiting, row))
        self._waiting = later
        if now:
            self._n_answered = 0  # stop expecting requests that have not come by now
        self._of_row.update({row: waiting for waiting, row in now})
        self._batches += [Batch(group) for group in by_voice([row for _, row in now])]

    def _step(self, batch: Batch) -> None:
        for row in batch.rows:
            if self._of_row[row].future.cancelled():
                row.end()
        try:
            with self.model.lock:
                over = batch.step()
        except Exception as error:
            if type(error).__name__ == "AcceleratorError":  # torch's: the GPU is unusable afterwards
                raise
            if len(batch.rows) > 1 and not batch.n_steps:  # retry one by one: a single row may be the cause
                self._batches += [Batch([row]) for row in batch.rows]
            else:
                lost = failed(error)
                self._tell([(each, _failure(each, lost)) for each in self._gone(batch.rows)])
            batch.rows = []
            return
        self._n_answered += len(over)
        heard = [(self._of_row[row], row) for row in batch.rows if self._of_row[row].on_text]
        ended = zip(self._gone(over), over, strict=True)
        self._tell([(each, _news(each, row)) for each, row in (*heard, *ended)])

    def _gone(self, rows: Sequence[Row]) -> list[_Waiting]:
        return [self._of_row.pop(row) for row in rows]

    def _tell(self, news: Sequence[_News]) -> None:
        """Deliver all news, with one wake-up per event loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[_News]] = {}
        for waiting, tell in news:
            by_loop.setdefault(waiting.loop, []).append((waiting, tell))
        for loop, told in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no coroutine waits in it
                loop.call_soon_threadsafe(_tell_all, told)


def _failure(waiting: _Waiting, error: Exception) -> Callable[[], None]:
    return partial(waiting.future.set_exception, error)


def _news(waiting: _Waiting, row: Row) -> Callable[[], None]:
    """Return a function that delivers the text or the answer of a row, or its error."""
    try:
        if row.is_over:
            return partial(waiting.future.set_result, row.answer())
        assert waiting.on_text is not None  # otherwise only finished rows are delivered
        return partial(waiting.on_text, row.sure_text)
    except BaseException as error:  # noqa: BLE001 - any failure ends this row only
        row.end()
        return _failure(waiting, failed(error))


def _tell_all(news: Sequence[_News]) -> None:
    for waiting, tell in news:
        if not waiting.future.done():  # otherwise the coroutine was cancelled
            tell()
