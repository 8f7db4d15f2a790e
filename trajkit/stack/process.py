"""Start and find processes that outlive the command that started them, and identify them beyond their id."""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import trajkit
from trajkit.errors import StackError
from trajkit.schema.base import Model, UtcTime

_IS_LINUX = platform.system() == "Linux"
_POLL_S = 0.02
_LOG_LINES = 12
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

# Handles of processes that this process started. It must wait for its children; a dropped Popen warns.
_children: dict[int, subprocess.Popen[bytes]] = {}

Answer = TypeVar("Answer")


class Process(Model):
    """A process, identified by its id and its start."""

    pid: int
    """Process id."""
    birth: str
    """Time of its start, as the operating system gives it: ids are reused, the pair is unique."""
    started_at: UtcTime
    """Time of its start, by trajkit's clock."""

    @property
    def is_running(self) -> bool:
        """Whether exactly this process is alive."""
        _bury(self.pid)
        return birth_of(self.pid) == self.birth


def birth_of(pid: int) -> str | None:
    """Return the system's start time of a process; None when there is none, or only a zombie."""
    return _birth_by_proc(pid) if _IS_LINUX else _birth_by_ps(pid)


def _birth_by_ps(pid: int) -> str | None:
    fields = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"LC_ALL": "C", "TZ": "UTC"},
    ).stdout.split(maxsplit=1)
    return fields[1].strip() if len(fields) == 2 and not fields[0].startswith("Z") else None


def _birth_by_proc(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name is in brackets and may contain brackets: count from the last one. Field 3 is the state, 20 the
    # number of threads, 22 the start. A process without its first thread still holds its port and its files.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in ("Z", "X") and int(fields[17]) <= 1:
        return None
    boot = _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else ""
    return f"{boot}:{fields[19]}"


def start_module(
    module: str,
    arguments: Sequence[str],
    *,
    log: Path,
    is_ready: Callable[[Process], Answer | None],
    what: str,
    timeout_s: float = 30.0,
    environment: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
) -> tuple[Process, Answer]:
    """Start `python -m module` in its own session and wait until it is ready.

    Args:
        module: Dotted name of the module to run.
        arguments: Its arguments.
        log: File for its output; emptied first.
        is_ready: Called repeatedly until it returns an answer that is not None.
        what: Name of the service in errors.
        timeout_s: Maximum seconds for the start.
        environment: Variables added to this process's own.
        stdin: File descriptor of its standard input.

    Returns:
        The process and the answer of `is_ready`.

    Raises:
        StackError: It ended, or was stopped because it was not ready in time; the message has the log's end.
    """
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal must reach only the command
            # `python -m` searches the working folder first: use trajkit's own folder, not the user's
            cwd=Path(trajkit.__file__).parents[1],
            env=os.environ | (environment or {}),
        )
    _children[child.pid] = child
    process = Process(pid=child.pid, birth=birth_of(child.pid) or "", started_at=datetime.now(UTC))
    try:
        return process, _wait(process, is_ready, log=log, what=what, timeout_s=timeout_s)
    except BaseException:
        end(process, grace_s=0)
        raise


def _wait(
    process: Process, is_ready: Callable[[Process], Answer | None], *, log: Path, what: str, timeout_s: float
) -> Answer:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        is_alive = process.is_running  # before is_ready: a process that answers and then ends was ready
        if (answer := is_ready(process)) is not None:
            return answer
        if not is_alive:
            raise StackError(f"{what} did not start{last_lines(log)}", hint=f"its log: {log}")
        time.sleep(_POLL_S)
    raise StackError(f"{what} was not ready after {timeout_s:g} s{last_lines(log)}", hint=f"its log: {log}")


def last_lines(log: Path) -> str:
    """Return the end of a log, to follow a message."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return ":\n" + "\n".join(f"  {line}" for line in lines[-_LOG_LINES:]) if lines else " and printed nothing"


def end(process: Process, *, grace_s: float = 10.0) -> bool:
    """Stop a process, by force after `grace_s` seconds and then with its children.

    Another process with the same id is left alone.

    Returns:
        Whether it was running.
    """
    if not process.is_running:
        return False
    if grace_s > 0:
        _signal(process, signal.SIGTERM)
        if _is_gone_within(process, grace_s):
            return True
    _signal(process, signal.SIGKILL)
    if not _is_gone_within(process, 10.0):
        raise StackError(f"process {process.pid} cannot be stopped: it still runs after SIGKILL")
    return True


def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGKILL and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, number)  # its children too: they get no signal from a killed parent
        else:
            os.kill(process.pid, number)


def _is_gone_within(process: Process, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while process.is_running:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _bury(pid: int) -> None:
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        del _children[pid]


@atexit.register
def _let_go() -> None:
    """Reap ended children, and drop the handles of the others: services outlive this process."""
    for pid in list(_children):
        _bury(pid)
    for child in _children.values():
        child.returncode = 0  # otherwise the handle warns about a running process
