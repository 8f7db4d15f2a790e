"""Two tables are pulled at the same time: a failure of one ends both, also when the other hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trajkit.errors import ServiceError
from trajkit.sources.tensorzero.connect import streams
from trajkit.sources.tensorzero.connect.streams import Count, aside
from trajkit.sources.tensorzero.export import choose as choice
from trajkit.sources.tensorzero.export import export, grouping, pull
from trajkit.sources.tensorzero.export.spool import Group, Spool
from trajkit.store import writer

BATCH = pa.RecordBatch.from_pydict({"a": [1, 2]})


def endless(pulled: list[int]) -> Iterator[pa.RecordBatch]:
    while True:
        pulled.append(1)
        time.sleep(0.001)
        yield BATCH


def a_count() -> Count:
    return Count("reading", None, lambda *progress: None)


def test_what_fails_beside_is_raised_and_ends_the_stream_of_the_block() -> None:
    def fails() -> None:
        for _ in count.of(iter([BATCH])):
            raise ServiceError("the database is gone")

    count = a_count()
    with pytest.raises(ServiceError, match="gone"), aside(fails, count):
        for _ in count.of(endless([])):
            pass


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ServiceError("gone")])
def test_a_block_that_fails_ends_the_stream_beside_it(error: Any) -> None:
    pulled: list[int] = []
    count = a_count()

    def streams() -> None:
        for _ in count.of(endless(pulled)):
            pass

    def fails() -> None:
        while len(pulled) < 3:
            time.sleep(0.001)
        raise error

    with pytest.raises(type(error)), aside(streams, count):
        fails()
    n = len(pulled)
    time.sleep(0.05)
    assert len(pulled) == n


def test_a_stream_that_hangs_does_not_hold_up_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PATIENCE_S", 0.1)
    hanging = threading.Event()
    began = time.monotonic()

    def hangs() -> None:
        hanging.wait(60)

    with pytest.raises(KeyboardInterrupt), aside(hangs, a_count()):
        raise KeyboardInterrupt
    assert time.monotonic() - began < 40
    hanging.set()


def test_what_is_done_meanwhile_says_how_far_it_is_only_when_nothing_else_comes() -> None:
    told: list[tuple[Any, ...]] = []
    count = Count("reading", None, lambda *progress: told.append(progress))
    stream = count.of(iter([BATCH, BATCH]))
    next(stream)
    other = Count("and more", None, count.then)
    list(other.of(iter([BATCH])))
    assert {what for what, *_ in told} == {"reading"}
    list(stream)
    list(other.of(iter([BATCH])))
    assert told[-1] == ("and more", 4, None)


@pytest.mark.full
def test_many_rows_are_checked_in_less_memory_with_the_same_result(
    run: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.episode(0.5, n_steps=2)
    _, expected = run()
    monkeypatch.setattr(choice, "MANY_ROWS", 0)
    monkeypatch.setattr(export, "MANY_ROWS", 0)
    limits: list[str] = []
    checked = writer.check

    def check(connection: Any, metrics: Any) -> None:
        limits.append(connection.execute("SELECT current_setting('memory_limit')").fetchone()[0])
        checked(connection, metrics)

    monkeypatch.setattr(writer, "check", check)
    _, found = run()
    assert found == expected
    assert limits == ["953.6 MiB"]


@pytest.mark.full
def test_few_open_files_make_few_buckets(run: Any, rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(12):
        rows.episode(0.5, n_steps=2)
    _, expected = run()
    monkeypatch.setattr(grouping, "GROUP_STEPS", 1)
    monkeypatch.setattr(grouping, "_open_files", lambda: 64 + 2 * 5)
    made: list[int] = []
    spool = pull.Spool
    monkeypatch.setattr(pull, "Spool", lambda *args: made.append(args[3]) or spool(*args))
    _, found = run()
    assert made == [5, 5]
    assert found == expected


def test_a_part_that_waits_does_not_keep_what_it_was_cut_from(tmp_path: Path) -> None:
    # 1 row in 1,000 is of the first bucket: it alone would wait for long
    numbers = pa.array([0] + [1] * 999, pa.uint16())
    batch = pa.RecordBatch.from_pydict({"bucket": numbers, "text": ["x" * 2_000] * 1000})
    spool = Spool(tmp_path, "text", batch.schema, 2)
    most = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for _ in range(100):
            yield batch.take(pa.array(range(1000)))
            most = max(most, pa.total_allocated_bytes() - before)

    before = pa.total_allocated_bytes()
    spool.fill(batches())
    assert spool.size(0).n_rows == 100
    assert most < 100_000_000  # of 200


def test_long_texts_wait_for_few_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trajkit.sources.tensorzero.export.spool._WAITING_BYTES", 10_000)
    batch = pa.RecordBatch.from_pydict(
        {"bucket": pa.array([0, 1], pa.uint16()), "text": ["x" * 4_000, "y" * 4_000]}
    )
    spool = Spool(tmp_path, "text", batch.schema, 2)
    spool.fill(iter([batch] * 10))
    with pa.ipc.open_file(str(spool.path(0))) as reader:
        assert reader.num_record_batches == 5
    group = Group(spool, range(2), "row")
    assert group.table(["text"]).num_rows == 20
    assert group.texts(1, "text").to_pylist() == ["y" * 4_000] * 10
