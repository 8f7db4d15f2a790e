"""What benchmarks share: programs in processes of their own, what they took, and the verdict."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Measured(NamedTuple):
    """What a command took."""

    seconds: float
    cpu_s: float
    """Seconds of all processors, of the process and its children."""
    peak_mb: float
    """Most memory of a process. On Linux it is at least what the measuring process has: keep that small."""


def measured(command: Sequence[str], folder: Path, *, may_fail: bool = False) -> Measured:
    """Run a command of trajkit in a folder; what it prints is dropped.

    Args:
        command: The words after `trajkit`.
        folder: Where it runs.
        may_fail: Whether it may end with 1, for what it finds in the data.
    """
    program = [sys.executable, "-c", "from trajkit.cli.main import main; main()", *command]
    environment = {**os.environ, "HF_TOKEN": "", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryFile() as said:
        started = time.perf_counter()
        process = subprocess.Popen(
            program, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=said
        )
        _, status, used = os.wait4(process.pid, 0)
        elapsed_s = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in ((0, 1) if may_fail else (0,)):
            said.seek(0)
            raise RuntimeError(f"trajkit {' '.join(command)} failed: {said.read().decode()[-2000:]}")
    return Measured(elapsed_s, used.ru_utime + used.ru_stime, peak_mb(used))


def peak_mb(used: resource.struct_rusage | None = None) -> float:
    """Most memory that a process has held: this one, unless another one's use is given."""
    used = used or resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def again(file: str, *words: object, **environment: str) -> Any:
    """Run a benchmark's file in a process of its own: the JSON that it prints last.

    Args:
        file: The file.
        words: Its arguments.
        environment: Variables beside those of this process.
    """
    command = [sys.executable, str(Path(file).resolve()), *map(str, words)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def machine() -> str:
    """Where it was measured."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def judged(checks: Iterable[tuple[str, bool]]) -> int:
    """Print what was found, and whether it is within its limit; the exit code."""
    code = 0
    for text, holds in checks:
        print(f"  {'ok    ' if holds else 'MISSED'}  {text}")
        code = code if holds else 1
    return code
