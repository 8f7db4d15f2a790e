"""Coroutines run from code that waits for them, with and without a loop around it."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading

import pytest

from trajkit._core.process.loop import run_to_end

WORD = contextvars.ContextVar("WORD", default="none")


async def said(text: str) -> str:
    await asyncio.sleep(0)
    return f"{text} {WORD.get()}"


def under_a_loop(work):
    """What a notebook does: the cell runs while a loop runs in its thread."""

    async def cell():
        return work()

    return asyncio.run(cell())


def test_it_gives_what_the_coroutine_gives():
    assert run_to_end(said("plain")) == "plain none"


def test_under_a_loop_it_gives_the_same_and_sees_the_same_context():
    WORD.set("outer")
    try:
        assert under_a_loop(lambda: run_to_end(said("inner"))) == "inner outer"
    finally:
        WORD.set("none")


@pytest.mark.parametrize("call", [lambda work: work(), under_a_loop], ids=["plain", "under a loop"])
def test_what_it_raises_is_raised(call):
    async def fails():
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        call(lambda: run_to_end(fails()))


def test_a_stop_cancels_the_work_and_waits_for_its_end():
    seen = []

    async def long():
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
            seen.append("ended")
            raise

    async def cell():
        # the loop's own handler would cancel the cell; a notebook's stop is a KeyboardInterrupt
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            run_to_end(long())
        except KeyboardInterrupt:
            seen.append("stopped")
        finally:
            signal.signal(signal.SIGINT, before)

    asyncio.run(cell())
    assert seen == ["ended", "stopped"]


@pytest.fixture
def ctrl_c():
    """Ctrl-C as a plain Python has it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_while_the_loop_is_made_is_raised_when_that_has_ended(ctrl_c, monkeypatch):
    begun = []

    async def work():
        begun.append("begun")

    def stopped_meanwhile():
        ctrl_c()
        begun.append("loop made")
        return new_event_loop()

    new_event_loop = asyncio.new_event_loop
    monkeypatch.setattr(asyncio.events, "new_event_loop", stopped_meanwhile)
    with pytest.raises(KeyboardInterrupt):
        run_to_end(work())
    assert begun == ["loop made"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_after_the_work_is_raised_when_the_loop_is_closed(ctrl_c):
    loops = []

    async def work():
        loops.append(asyncio.get_running_loop())
        asyncio.current_task().add_done_callback(lambda _: ctrl_c())

    with pytest.raises(KeyboardInterrupt):
        run_to_end(work())
    assert loops[0].is_closed()


def test_a_second_ctrl_c_does_not_wait_for_the_end(ctrl_c):
    async def work():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ctrl_c()
            pytest.fail("it went on")

    async def stopped():
        asyncio.get_running_loop().call_later(0.01, ctrl_c)
        await work()

    with pytest.raises(KeyboardInterrupt):
        run_to_end(stopped())


def test_a_cancellation_that_nobody_asked_for_is_not_ctrl_c(ctrl_c):
    async def work():
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        run_to_end(work())
