"""Groups are worked on in threads: in order, within memory, and stopped when one fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import duckdb
import pytest

from trajkit.sources.tensorzero.export import workers
from trajkit.sources.tensorzero.export.spool import Size
from trajkit.sources.tensorzero.export.workers import Room, Running, Workers

LONG = "SELECT count(*) FROM range(100_000) a, range(100_000_000) b WHERE a.range = b.range + 1"


def long_query(running: Running, connection: duckdb.DuckDBPyConnection, begun: threading.Event) -> None:
    with running.cursor(connection) as cursor:
        begun.set()
        cursor.execute(LONG).fetchall()


def test_results_come_in_the_order_of_the_work() -> None:
    taken: list[int] = []

    def work(number: int) -> int:
        time.sleep(0.02 * (number % 2 == 0))
        return number

    with Workers[int](Running(), taken.append) as workers:
        for number in range(7):
            workers.give(lambda number=number: work(number))  # type: ignore[misc]  # no type for a default
    assert taken == list(range(7))


def test_two_are_worked_on_at_a_time() -> None:
    both = threading.Barrier(2)
    with Workers[int](Running(), lambda result: None) as workers:
        workers.give(lambda: both.wait(30))
        workers.give(lambda: both.wait(30))


def test_what_fails_is_raised_and_stops_the_queries_of_the_others() -> None:
    begun, running = threading.Event(), Running()

    def failing() -> None:
        assert begun.wait(30)
        raise OSError("the disk is full")

    def block(connection: duckdb.DuckDBPyConnection) -> None:
        with Workers[None](running, lambda result: None) as workers:
            workers.give(failing)
            workers.give(lambda: long_query(running, connection, begun))

    started = time.monotonic()
    with duckdb.connect() as connection, pytest.raises(OSError, match="disk is full"):
        block(connection)
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_block_that_fails_stops_what_runs_and_does_not_begin_more(error: type[BaseException]) -> None:
    first, second, third, running = (threading.Event(), threading.Event(), threading.Event(), Running())

    def block(connection: duckdb.DuckDBPyConnection) -> None:
        with Workers[None](running, lambda result: None) as workers:
            for begun in (first, second):
                workers.give(lambda begun=begun: long_query(running, connection, begun))  # type: ignore[misc]
            assert first.wait(30)
            assert second.wait(30)
            workers._pool.submit(third.set)  # waits for a thread
            raise error

    started = time.monotonic()
    with duckdb.connect() as connection, pytest.raises(error):
        block(connection)
    assert time.monotonic() - started < 60
    assert not third.is_set()


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    """Room for 10 bytes."""
    monkeypatch.setattr(workers, "may_be_one", lambda size: size.n_bytes <= 10)
    return Room()


def entering(room: Room, n_bytes: int, leave: threading.Event) -> Callable[[], bool]:
    """Take room in a thread until told to leave; says whether it has it."""
    inside = threading.Event()

    def work() -> None:
        with room.of(Size(1, n_bytes, 0)):
            inside.set()
            assert leave.wait(30)

    threading.Thread(target=work, daemon=True).start()
    return lambda: inside.wait(0.3)


def test_what_fits_together_goes_together_and_the_rest_waits(room: Room) -> None:
    leave, later = threading.Event(), threading.Event()
    assert entering(room, 6, leave)()
    assert entering(room, 4, leave)()
    third = entering(room, 1, later)
    assert not third()
    leave.set()
    assert third()
    later.set()


def test_what_is_alone_has_room_whatever_its_size(room: Room) -> None:
    leave = threading.Event()
    assert entering(room, 1_000, leave)()
    second = entering(room, 1, leave)
    assert not second()
    leave.set()
    assert second()
