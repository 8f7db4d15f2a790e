from __future__ import annotations

import os
import shutil
import signal
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


def test_a_process_is_known_by_its_id_and_its_birth_and_another_is_left_alone(
    stranger: subprocess.Popen[bytes],
) -> None:
    birth = birth_of(stranger.pid)
    assert Process(pid=stranger.pid, birth=birth, started_at=datetime.now(UTC)).is_running
    once = Process(pid=stranger.pid, birth="long ago", started_at=datetime.now(UTC))
    assert not once.is_running
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


def test_a_started_process_has_a_session_of_its_own_and_nothing_is_left_of_it_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "timeit.py").write_text("raise SystemExit('the module of the user')")
    monkeypatch.chdir(tmp_path)
    process = sleeper(tmp_path / "log")
    try:
        assert os.getsid(process.pid) == process.pid  # Ctrl-C does not reach it
    finally:
        assert end(process) is True
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


_OUTLIVED = """
import sys
from pathlib import Path
from trajkit.stack.process import start_module
process, _ = start_module(
    "http.server", ["0", "--bind", "127.0.0.1"], log=Path(sys.argv[1]), is_ready=lambda _: True, what="it"
)
print(process.pid)
"""


def test_a_service_may_outlive_its_starter_in_silence(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", _OUTLIVED, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        check=True,
    )
    os.kill(int(done.stdout), signal.SIGKILL)
    assert done.stderr == ""
