"""A stream that is read by a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator

import pytest

from trajkit.sources.tensorzero.connect.background import Told, ahead, in_background


def test_everything_comes_in_order_and_then_it_ends() -> None:
    def read(told: Told) -> Generator[int | None, None, None]:
        yield from (1, None, 3)

    assert list(in_background(read, silence_s=5)) == [1, None, 3]


def test_what_goes_wrong_is_raised_after_what_came_before_it() -> None:
    def read(told: Told) -> Generator[int, None, None]:
        yield 1
        raise ValueError("broken")

    stream = iter(in_background(read, silence_s=5))
    assert next(stream) == 1
    with pytest.raises(ValueError, match="broken"):
        next(stream)


def test_who_stops_has_the_stream_closed_in_its_thread_and_the_server_told() -> None:
    closed_by: list[threading.Thread] = []
    cancelled = threading.Event()

    def read(told: Told) -> Generator[int, None, None]:
        told.cancel = cancelled.set
        try:
            while True:
                yield 1
        finally:
            closed_by.append(threading.current_thread())

    stream = iter(in_background(read, silence_s=5))
    assert next(stream) == 1
    stream.close()  # type: ignore[attr-defined]
    until = time.monotonic() + 10
    while not closed_by and time.monotonic() < until:
        time.sleep(0.01)
    assert cancelled.is_set()
    assert closed_by[0] is not threading.main_thread()


def test_only_a_few_items_are_read_ahead() -> None:
    made: list[int] = []

    def read(told: Told) -> Generator[int, None, None]:
        for number in range(1000):
            made.append(number)
            yield number

    stream = in_background(read, silence_s=5)
    next(iter(stream))
    time.sleep(0.2)
    assert len(made) <= 5


def test_silence_ends_after_a_while() -> None:
    hanging = threading.Event()

    def read(told: Told) -> Generator[int, None, None]:
        hanging.wait(60)
        yield 1

    with pytest.raises(TimeoutError, match=r"no data for 0\.1 s"):
        next(iter(in_background(read, silence_s=0.1)))
    hanging.set()


def test_what_is_wanted_later_is_read_meanwhile_and_comes_in_order() -> None:
    is_read = threading.Event()

    def numbers() -> Iterator[int]:
        yield from range(3)
        is_read.set()
        yield from range(3, 10)

    with ahead(numbers(), 4) as coming:
        assert is_read.wait(10)
        assert list(coming) == list(range(10))


def test_what_goes_wrong_ahead_is_raised_where_it_is_wanted() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    with ahead(numbers(), 4) as coming:
        assert next(coming) == 1
        with pytest.raises(ValueError, match="broken"):
            next(coming)


def test_what_is_read_ahead_and_wanted_no_more_is_closed() -> None:
    is_closed = threading.Event()

    def numbers() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            is_closed.set()

    with ahead(numbers(), 2) as coming:
        assert next(coming) == 1
    assert is_closed.wait(10)
