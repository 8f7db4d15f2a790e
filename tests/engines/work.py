"""What workers do in the tests of engines; they import it by name."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

from trajkit._core.files import write_text
from trajkit.curation.redact import redact_parts as _redact_parts
from trajkit.errors import DataError


def double(item: dict[str, Any]) -> int:
    """Twice a number; it leaves a file for each time it ran."""
    number: int = item["number"]
    write_text(Path(item["folder"]) / f"ran-{number}-{os.getpid()}-{time.monotonic_ns()}", "")
    return 2 * number


def refuse_two(item: dict[str, Any]) -> int:
    """The same, but not of 2."""
    if item["number"] == 2:
        raise DataError("episode 'e2', row 7: no number", hint="number it")
    return double(item)


def die_once(item: dict[str, Any]) -> int:
    """The same; the first process that is given 1 is killed in the middle."""
    if item["number"] == 1:
        try:
            (Path(item["folder"]) / "died").touch(exist_ok=False)
        except FileExistsError:
            return double(item)
        os.kill(os.getpid(), signal.SIGKILL)
    return double(item)


def redact_parts(item: dict[str, Any]) -> dict[str, Any]:
    """Write parts of a redacted store; the first process that has the second one is killed."""
    if item["parts"] == ["part-00001.parquet"]:
        with contextlib.suppress(FileExistsError):
            Path(os.environ["TRAJKIT_TEST_KILLED"]).touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
    return _redact_parts(item)


def forget_import(item: dict[str, Any]) -> int:
    """Fail as a bug does."""
    raise KeyError("secret")


def place(step: Any) -> float | None:
    """Score a step; the first has no score."""
    return step.step_index / 3 if step.step_index else None


def wait(item: dict[str, Any]) -> int:
    """The same, later."""
    time.sleep(0.5)
    return double(item)
