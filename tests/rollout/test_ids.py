import time
import uuid
from datetime import UTC, datetime, timedelta

from trajkit.rollout import ids


def test_an_id_is_a_uuid_of_version_7():
    made = uuid.UUID(ids.uuid7())
    assert made.version == 7
    assert made.variant == uuid.RFC_4122


def test_ids_are_in_order_and_unique():
    made = [ids.uuid7() for _ in range(20_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_an_id_says_when_it_was_made_and_never_lies_ahead():
    before = datetime.now(UTC)
    for _ in range(20_000):  # many in one millisecond
        made = ids.uuid7()
        assert uuid.UUID(made).int >> 80 <= time.time_ns() // 1_000_000
    assert before - timedelta(milliseconds=1) <= ids.time_of(made) <= datetime.now(UTC)


def test_a_full_counter_waits_for_the_next_millisecond(monkeypatch):
    now = time.time_ns() // 1_000_000
    monkeypatch.setattr(ids, "_last", (now + 20, (1 << 12) - 1))
    made = uuid.UUID(ids.uuid7()).int >> 80
    assert now + 20 < made <= time.time_ns() // 1_000_000


def test_a_clock_set_back_by_an_hour_is_followed(monkeypatch):
    now = time.time_ns() // 1_000_000
    monkeypatch.setattr(ids, "_last", (now + 3_600_000, 5))
    assert now <= uuid.UUID(ids.uuid7()).int >> 80 <= time.time_ns() // 1_000_000
