"""Processes that outlive the command that starts them, and are never mistaken for others of the same id."""

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

# Handles of what this process started. Its children are its own to bury, and a dropped Popen warns.
_children: dict[int, subprocess.Popen[bytes]] = {}

Answer = TypeVar("Answer")


class Process(Model):
    """A process by its id and its start, which together name it for good."""

    pid: int
    """Process id."""
    birth: str
    """When it started, as the operating system writes it: ids are used again, the pair is not."""
    started_at: UtcTime
    """When it was started, by our clock."""

    @property
    def is_running(self) -> bool:
        """Whether this very process is alive."""
        _bury(self.pid)
        return birth_of(self.pid) == self.birth


def birth_of(pid: int) -> str | None:
    """What the system says about the start of a process; None when there is none, or only its remains."""
    return _birth_by_proc(pid) if _IS_LINUX else _birth_by_ps(pid)


def _birth_by_ps(pid: int) -> str | None:
    told = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"LC_ALL": "C", "TZ": "UTC"},
    ).stdout.split(maxsplit=1)
    return told[1].strip() if len(told) == 2 and not told[0].startswith("Z") else None


def _birth_by_proc(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name is in brackets and may hold anything: count from the last one. Field 3 is the state, 20 the
    # number of threads, 22 the start. Without its first thread a process still holds its port and its files.
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
) -> tuple[Process, Answer]:
    """Start `python -m module` in a session of its own and wait until it is ready.

    Args:
        module: Dotted name of the module to run.
        arguments: Its arguments.
        log: File for what it prints; emptied first.
        is_ready: Asked again and again; an answer that is not None ends the waiting.
        what: Name of the service in an error.
        timeout_s: Seconds it may take.
        environment: Variables added to this process's own.

    Returns:
        The process and the answer of `is_ready`.

    Raises:
        StackError: It ended, or was not ready in time and was ended; the message has its log's last lines.
    """
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal is for the command, not for the service
            # `python -m` looks in the working folder first: let that be where trajkit is, not the user's
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
        is_alive = process.is_running  # asked before the answer: a process that answers and ends was ready
        if (answer := is_ready(process)) is not None:
            return answer
        if not is_alive:
            raise StackError(f"{what} did not start{_last_lines(log)}", hint=f"its log: {log}")
        time.sleep(_POLL_S)
    raise StackError(f"{what} was not ready after {timeout_s:g} s{_last_lines(log)}", hint=f"its log: {log}")


def _last_lines(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return ":\n" + "\n".join(f"  {line}" for line in lines[-_LOG_LINES:]) if lines else " and said nothing"


def end(process: Process, *, grace_s: float = 10.0) -> bool:
    """Stop a process, by force when it has not ended after `grace_s` seconds. A stranger is left alone.

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
        raise StackError(f"process {process.pid} cannot be stopped: it is still there after SIGKILL")
    return True


def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
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
    """Bury what has ended unseen, and drop the handles of the rest: services are meant to outlive this."""
    for pid in list(_children):
        _bury(pid)
    for child in _children.values():
        child.returncode = 0  # else its handle warns that nobody waits for it
