"""Asks that wait at the same time are answered in one batch, whatever the clock says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from trajkit.rollouts.local.lockstep import LockStep


def test_those_that_come_some_turns_late_are_in_the_same_batch() -> None:
    sizes: list[int] = []

    def answer(asked: Sequence[int]) -> list[int | Exception]:
        sizes.append(len(asked))
        return [2 * each for each in asked]

    async def episode(lock_step: LockStep[int, int], late: int, n_steps: int) -> list[int]:
        said = []
        for step in range(n_steps):
            for _ in range(late):
                await asyncio.sleep(0)
            said.append(await lock_step.ask(10 * late + step))
        return said

    async def play() -> list[list[int]]:
        lock_step = LockStep(answer)
        try:
            return await asyncio.gather(*(episode(lock_step, late, 3 + late) for late in range(4)))
        finally:
            await lock_step.close()

    said = asyncio.run(play())
    assert said[1] == [20, 22, 24, 26]
    assert sizes == [4, 4, 4, 3, 2, 1]


def test_an_error_is_raised_where_it_was_asked_for_and_nowhere_else() -> None:
    def answer(asked: Sequence[int]) -> list[int | Exception]:
        return [ValueError(f"not {each}") if each == 1 else each for each in asked]

    async def play() -> list[int | BaseException]:
        lock_step = LockStep(answer)
        try:
            return await asyncio.gather(*map(lock_step.ask, range(3)), return_exceptions=True)
        finally:
            await lock_step.close()

    first, second, third = asyncio.run(play())
    assert (first, str(second), third) == (0, "not 1", 2)


def test_a_batch_that_fails_fails_for_all_and_the_next_one_is_answered() -> None:
    calls: list[Sequence[int]] = []

    def answer(asked: Sequence[int]) -> list[int | Exception]:
        calls.append(asked)
        if len(calls) == 1:
            raise RuntimeError("out of memory")
        return list(asked)

    async def play() -> int:
        lock_step = LockStep(answer)
        try:
            with pytest.raises(RuntimeError, match="out of memory"):
                await lock_step.ask(1)
            return await lock_step.ask(2)
        finally:
            await lock_step.close()

    assert asyncio.run(play()) == 2


def test_one_that_was_cancelled_is_answered_no_more_and_spoils_nothing() -> None:
    may_go = threading.Event()
    batches: list[list[int]] = []

    def answer(asked: Sequence[int]) -> list[int | Exception]:
        batches.append(list(asked))
        may_go.wait(20)
        return list(asked)

    async def play() -> int:
        lock_step = LockStep(answer)
        try:
            running = asyncio.create_task(lock_step.ask(1))
            while not batches:
                await asyncio.sleep(0.001)
            late = asyncio.create_task(lock_step.ask(2))
            await asyncio.sleep(0)
            late.cancel()
            may_go.set()
            assert await running == 1
            return await lock_step.ask(3)
        finally:
            await lock_step.close()

    assert asyncio.run(play()) == 3
    assert batches == [[1], [3]]
