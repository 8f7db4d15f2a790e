"""Answer the requests of waiting episodes together, so that the episodes act in lock step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Said = TypeVar("Said")

_QUIET_TURNS = 12
"""After this many turns of the event loop without a new request, all requests have arrived. An episode that
ends and the next one that begins in its place take fewer turns."""


class LockStep(Generic[Asked, Said]):
    """Answers waiting requests as one batch, in its own thread.

    The batches depend only on which episodes wait, not on a clock, so that a run can be repeated exactly.

    Args:
        answer: Answers a batch, in order; an exception in place of an answer is raised for that request.
    """

    def __init__(self, answer: Callable[[Sequence[Asked]], Sequence[Said | Exception]]) -> None:
        self._answer = answer
        self._waiting: list[tuple[Asked, asyncio.Future[Said]]] = []
        self._turn: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "lock-step")

    async def ask(self, asked: Asked) -> Said:
        """Wait for the answer, which comes with those of all waiting episodes."""
        future: asyncio.Future[Said] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, future))
        if self._turn is None or self._turn.done():
            self._turn = asyncio.create_task(self._answer_all())
        return await future

    async def close(self) -> None:
        """End the thread, once the batch that it answers is done."""
        if self._turn is not None:
            self._turn.cancel()
        await asyncio.to_thread(self._thread.shutdown)

    async def _answer_all(self) -> None:
        while self._waiting:
            await self._quiet()
            batch = [(asked, future) for asked, future in self._waiting if not future.cancelled()]
            self._waiting = []
            if not batch:
                continue
            loop = asyncio.get_running_loop()
            try:
                said = await loop.run_in_executor(self._thread, self._answer, [asked for asked, _ in batch])
            except Exception as error:  # noqa: BLE001 -- raised in the waiting callers
                said = [error] * len(batch)
            for (_, future), one in zip(batch, said, strict=True):
                if future.done():  # the waiting caller was cancelled
                    continue
                if isinstance(one, Exception):
                    future.set_exception(one)
                else:
                    future.set_result(one)
            await asyncio.sleep(0)  # an episode that got its answer may send the next request

    async def _quiet(self) -> None:
        n_waiting, n_turns = -1, 0
        while n_turns < _QUIET_TURNS:
            await asyncio.sleep(0)
            n_turns = n_turns + 1 if len(self._waiting) == n_waiting else 0
            n_waiting = len(self._waiting)
