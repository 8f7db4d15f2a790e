"""Run one task of a job: `python -m trajkit.engines.task FOLDER INDEX`, as a job array does."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import TracebackType

from trajkit._core.secrets import hidden
from trajkit.engines.job import opened
from trajkit.errors import TrajkitError


def main(folder: str, index: str) -> int:
    """Run a task, and return the exit code."""
    try:
        opened(Path(folder)).run(int(index))
    except TrajkitError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.stderr.write(hidden("".join(traceback.format_exception(kind, error, trace))))


if __name__ == "__main__":
    sys.excepthook = _print_traceback
    sys.exit(main(*sys.argv[1:]))
