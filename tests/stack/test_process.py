from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trajkit.errors import StackError
from trajkit.stack.process import Process, _birth_by_ps, birth_of, end, start_module


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield child
        child.kill()


def sleeper(log: Path) -> Process:
    """The module `timeit` with an endless statement: any module that runs for long would do."""
    process, _ = start_module(
        "timeit",
        ["-n1", "-r1", "-s", "import time; print('up', flush=True)", "time.sleep(60)"],
        log=log,
        is_ready=lambda _: "up" in log.read_text() or None,
        what="the sleeper",
    )
    return process


def test_a_process_is_known_by_its_id_and_its_birth(stranger: subprocess.Popen[bytes]) -> None:
    birth = birth_of(stranger.pid)
    assert birth is not None
    assert Process(pid=stranger.pid, birth=birth, started_at=datetime.now(UTC)).is_running
    assert not Process(pid=stranger.pid, birth=birth + "0", started_at=datetime.now(UTC)).is_running


def test_another_process_of_the_same_id_is_left_alone(stranger: subprocess.Popen[bytes]) -> None:
    once = Process(pid=stranger.pid, birth="long ago", started_at=datetime.now(UTC))
    assert end(once) is False
    assert stranger.poll() is None


def test_a_process_that_has_ended_but_is_not_yet_buried_is_not_running() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    birth = birth_of(child.pid)
    assert birth is not None
    child.stdin.close()  # type: ignore[union-attr]
    deadline = time.monotonic() + 10
    while birth_of(child.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert birth_of(child.pid) is None
    child.wait()


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps here; install procps")
def test_where_there_is_no_proc_ps_tells_the_birth(stranger: subprocess.Popen[bytes]) -> None:
    birth = _birth_by_ps(stranger.pid)
    assert birth is not None, subprocess.run(["ps"], capture_output=True, check=False)
    told = datetime.strptime(birth, "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    assert abs((datetime.now(UTC) - told).total_seconds()) < 60
    assert _birth_by_ps(stranger.pid) == birth
    stranger.kill()
    while (
        b"Z"
        not in subprocess.run(["ps", "-o", "stat=", "-p", str(stranger.pid)], stdout=-1, check=False).stdout
    ):
        time.sleep(0.01)
    assert _birth_by_ps(stranger.pid) is None


def test_a_started_process_has_a_session_of_its_own_so_that_ctrl_c_does_not_reach_it(tmp_path: Path) -> None:
    process = sleeper(tmp_path / "log")
    try:
        assert os.getsid(process.pid) == process.pid
    finally:
        assert end(process) is True


def test_nothing_is_left_of_an_ended_process(tmp_path: Path) -> None:
    process = sleeper(tmp_path / "log")
    end(process)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    assert end(process) is False


def test_a_process_that_ends_before_it_is_ready_is_an_error_with_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"(?s)the sleeper did not start:\n.*unrecognized") as caught:
        start_module(
            "calendar",
            ["--unrecognized-option"],
            log=tmp_path / "log",
            is_ready=lambda _: None,
            what="the sleeper",
        )
    assert caught.value.hint == f"its log: {tmp_path / 'log'}"


def test_a_process_that_is_not_ready_in_time_is_ended(tmp_path: Path) -> None:
    seen: list[Process] = []
    with pytest.raises(StackError, match=r"the sleeper was not ready after 0\.3 s"):
        start_module(
            "timeit",
            ["-n1", "-r1", "-s", "import time", "time.sleep(60)"],
            log=tmp_path / "log",
            is_ready=seen.append,
            what="the sleeper",
            timeout_s=0.3,
        )
    assert not seen[0].is_running


def test_a_module_in_the_users_folder_does_not_stand_in_for_the_one_that_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "timeit.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    assert end(sleeper(tmp_path / "log")) is True
