from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from trajkit.environments.watch import TooLong, watch


def test_a_block_that_does_not_come_back_is_stopped_past_its_own_handlers() -> None:
    def stubborn() -> None:
        while True:
            with contextlib.suppress(Exception):
                time.sleep(10)

    began = time.monotonic()
    with pytest.raises(TooLong), watch(0.05):
        stubborn()
    assert time.monotonic() - began < 30


@pytest.fixture
def rung() -> Iterator[list[int]]:
    """An alarm of somebody else's, and when it went off."""
    rings: list[int] = []
    handler = signal.signal(signal.SIGALRM, lambda number, frame: rings.append(number))
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    yield rings
    signal.setitimer(signal.ITIMER_REAL, left)
    signal.signal(signal.SIGALRM, handler)


def test_an_earlier_alarm_is_set_again_for_what_is_left_of_it(rung: list[int]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 50)
    with watch(60):
        time.sleep(0.01)
    left, _ = signal.getitimer(signal.ITIMER_REAL)

    assert 0 < left < 50
    assert rung == []


def test_an_earlier_alarm_that_was_due_goes_off_afterwards(rung: list[int]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    with watch(60):
        time.sleep(0.05)
    deadline = time.monotonic() + 20
    while not rung and time.monotonic() < deadline:
        time.sleep(0.01)

    assert rung == [signal.SIGALRM]


def test_nothing_rings_after_a_block_that_came_back(rung: list[int]) -> None:
    with watch(0.05):
        pass
    time.sleep(0.1)

    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert rung == []


def test_another_thread_is_left_alone() -> None:
    done: list[bool] = []

    def work() -> None:
        with watch(0.01):
            time.sleep(0.05)
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
