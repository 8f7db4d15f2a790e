"""Run tasks in processes of this machine."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

from trajkit.engines.job import Job, opened
from trajkit.engines.workers import worked


def run(job: Job, indexes: list[int], workers: int | None) -> Iterator[int]:
    """Run tasks, and yield each that is done; one worker is this process.

    Raises:
        TrajkitError: A task failed, or a process died.
    """
    make = functools.partial(_runner, str(job.folder))
    processes = min(workers or 1, len(indexes))
    with contextlib.closing(worked(make, indexes, processes=processes)) as done:
        yield from done


def _runner(folder: str) -> Callable[[int], int]:
    job = opened(Path(folder))

    def run_task(index: int) -> int:
        job.run(index)
        return index

    return run_task
