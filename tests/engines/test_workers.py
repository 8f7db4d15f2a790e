from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trajkit.engines.workers import worked
from trajkit.errors import RequestError, TrajkitError


def squaring() -> Callable[[int], int]:
    return lambda number: number * number


def failing() -> Callable[[int], int]:
    def fail(number: int) -> int:
        raise RequestError(f"no {number}", hint="none")

    return fail


def dying() -> Callable[[int], int]:
    def die(number: int) -> int:
        os._exit(3)

    return die


def test_one_process_works_in_order_and_takes_things_as_it_needs_them() -> None:
    taken = []

    def things() -> Iterator[int]:
        for number in range(5):
            taken.append(number)
            yield number

    with contextlib.closing(worked(squaring, things(), processes=1)) as work:
        assert next(work) == 0
        assert taken == [0]
        assert list(work) == [1, 4, 9, 16]


def test_several_processes_do_the_same_and_hold_few_at_a_time() -> None:
    taken = []

    def things() -> Iterator[int]:
        for number in range(30):
            taken.append(number)
            yield number

    with contextlib.closing(worked(squaring, things(), processes=2)) as work:
        found = [next(work)]
        assert len(taken) <= 4
        found += work
    assert sorted(found) == [number * number for number in range(30)]


def test_an_error_of_the_work_comes_back_as_it_was() -> None:
    with pytest.raises(RequestError, match="no 1") as caught:
        list(worked(failing, [1], processes=2))
    assert caught.value.hint == "none"


def test_a_process_that_dies_is_told() -> None:
    with pytest.raises(TrajkitError, match="a worker process died"):
        list(worked(dying, [1], processes=2))
    with pytest.raises(RequestError, match="0 processes"):
        list(worked(squaring, [1], processes=0))


SLEEPING = """
import os, time
from trajkit.engines.workers import worked

def make():
    open(f"pid-{os.getpid()}", "a").close()
    return lambda thing: time.sleep(60)

if __name__ == "__main__":
    list(worked(make, range(9), processes=2))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_one_that_started_it(tmp_path: Path, how: signal.Signals) -> None:
    (tmp_path / "sleeping.py").write_text(SLEEPING)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "sleeping.py"], cwd=tmp_path, env=environment) as parent:
        try:
            pids = _waited_for(lambda: [int(p.name[4:]) for p in tmp_path.glob("pid-*")], n=2)
        finally:
            parent.send_signal(how)
        parent.wait(timeout=30)
    assert _waited_for(lambda: [1] if not any(map(_is_running, pids)) else [], n=1)


def _waited_for(look: Callable[[], list[int]], *, n: int) -> list[int]:
    deadline = time.monotonic() + 60
    while len(found := look()) < n:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")  # a zombie has ended, and was not waited for
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
