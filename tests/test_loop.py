"""Coroutines run from code that waits for them, with and without a loop around it."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading

import pytest

from trajkit._loop import run_to_end

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


def test_a_stop_while_the_loop_starts_is_a_stop():
    def handler_taken_over(number, handler):
        before = signal_signal(number, handler)
        if callable(handler) and handler is not signal.default_int_handler:
            signal.raise_signal(signal.SIGINT)
        return before

    signal_signal = signal.signal
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal, "signal", handler_taken_over)
        with pytest.raises(KeyboardInterrupt):
            run_to_end(asyncio.sleep(60))
    signal.signal(signal.SIGINT, before)
