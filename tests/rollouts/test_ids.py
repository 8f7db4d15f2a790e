import time
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from trajkit._core import ids

HOUR_MS = 3_600_000


class Clock:
    """A wall clock that can be set."""

    def __init__(self):
        self.now_ms = 1_800_000_000_000

    def __call__(self):
        return self.now_ms


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(ids, "_clock_ms", made)
    return made


def moment(identifier) -> int:
    return uuid.UUID(identifier).int >> 80


@pytest.mark.parametrize("make", [ids.uuid7, ids.uuid7_by_clock])
def test_an_id_is_a_uuid_of_version_7(make):
    made = uuid.UUID(make())
    assert made.version == 7
    assert made.variant == uuid.RFC_4122


def test_ids_are_in_order_and_unique():
    made = [ids.uuid7() for _ in range(20_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("make", [ids.uuid7, ids.uuid7_by_clock])
def test_an_id_says_when_it_was_made_and_never_lies_ahead(make):
    before = datetime.now(UTC)
    for _ in range(20_000):  # many in one millisecond
        made = make()
        assert moment(made) <= time.time_ns() // 1_000_000
    assert before - timedelta(milliseconds=1) <= ids.time_of(made) <= datetime.now(UTC)


def test_a_clock_that_jumps_back_by_an_hour_leaves_ids_in_order_and_unique(clock):
    made = [ids.Maker(follows_clock=False)]
    maker = made.pop()
    for jump_ms in (0, 5, -HOUR_MS, 1, 2 * HOUR_MS, -HOUR_MS, -10):
        clock.now_ms += jump_ms
        made += [maker.make() for _ in range(6000)] if jump_ms in (-HOUR_MS,) else [maker.make()]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_go_with_the_clock_again_when_it_has_caught_up(clock):
    maker = ids.Maker(follows_clock=False)
    maker.make()
    clock.now_ms -= HOUR_MS
    maker.make()
    clock.now_ms += 2 * HOUR_MS
    assert moment(maker.make()) == clock.now_ms


def test_a_clock_set_back_by_an_hour_is_followed_by_ids_that_must_not_lie_ahead(clock):
    maker = ids.Maker(follows_clock=True)
    maker.make()
    clock.now_ms -= HOUR_MS
    assert moment(maker.make()) == clock.now_ms
    clock.now_ms -= 500  # by so little they wait
    assert moment(maker.make()) == clock.now_ms + 500


def test_a_full_counter_waits_for_the_next_millisecond():
    maker = ids.Maker(follows_clock=False)
    now = time.time_ns() // 1_000_000
    maker._milliseconds, maker._counter = now + 20, (1 << 12) - 1
    assert now + 20 < moment(maker.make()) <= time.time_ns() // 1_000_000
