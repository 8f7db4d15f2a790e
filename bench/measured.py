"""Run a command of trajkit as a process of its own, and measure what it took."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


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
    peak_mb = used.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    return Measured(elapsed_s, used.ru_utime + used.ru_stime, peak_mb)
