"""The engines by name: what runs the shards of a job, and where."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trajkit.engines import ray_cluster, slurm
from trajkit.engines.job import Job, begun, opened
from trajkit.engines.workers import worked
from trajkit.errors import RequestError

OnProgress = Callable[[str, int, int | None], None]
"""Called with the name of the work, the number of shards done, and their total."""

_HINT = "engines: local, ray, ray://HOST:PORT, slurm"


@dataclass(frozen=True)
class Engine:
    """Runs the shards of a job. Made by `engine_named`."""

    on: str
    """Its name, such as `ray`."""
    workers: int | None
    """Maximum shards at a time; None for as many as the engine has room for."""
    run: Callable[[Job, list[int], int | None], Iterator[int]]
    """Runs tasks of a job, and yields each that is done."""
    on_progress: OnProgress = lambda what, done, total: None
    """Gets the progress of a job in shards, those of an earlier run included."""

    @property
    def n_shards(self) -> int:
        """Number of shards that keep every worker busy, for jobs that can be cut anywhere."""
        return self.workers or (os.cpu_count() or 1 if self.on == "local" else 32)

    def map(
        self,
        function: Callable[[Any], Any],
        items: Sequence[Any],
        *,
        what: str,
        folder: Path,
        on_progress: OnProgress | None = None,
    ) -> Generator[tuple[int, Any]]:
        """Yield the index and the result of each item, in the order in which they are done.

        A job with the same function and items that was stopped continues: its results are kept in `folder`,
        which the caller removes when it has used them. An item may be processed twice at the same time, so
        the function writes files under temporary names and renames them (`trajkit._core.files.replacing`).

        Args:
            function: A function of a module. It raises a `TrajkitError` that names the file, the row or the
                id; the shard is put before that.
            items: One for each shard. Items and results are JSON: paths and small facts, never data. Paths
                are absolute, and every worker sees the same files under them.
            what: What the job does, such as `mask`; for progress and errors.
            folder: Where the job is kept; every worker sees it.
            on_progress: Gets the progress of this job instead of the engine's own.

        Raises:
            TrajkitError: A shard failed, or a worker died.
            ServiceError: The engine cannot be reached.
            MissingExtra: Ray is not installed.
        """
        job = begun(function, items, what=what, folder=folder)
        missing = job.missing()
        job.forget_failures()
        show = on_progress or self.on_progress
        n_done = 0
        for index in range(job.n):
            if index not in missing:
                n_done += 1
                show(what, n_done, job.n)
                yield index, job.result(index)
        if not missing:
            return
        for index in self.run(job, missing, self.workers):
            n_done += 1
            show(what, n_done, job.n)
            yield index, job.result(index)


def engine_named(
    on: str | None,
    workers: int | None = None,
    *,
    on_progress: OnProgress = lambda what, done, total: None,
) -> Engine | None:
    """Return an engine.

    Args:
        on: `local` for local processes, `ray` for the local Ray cluster (a new one if none runs),
            `ray://HOST:PORT` for another, `slurm` for a job array. None without `workers` is this
            process.
        workers: Maximum shards at a time. None for one per core, or as many as the cluster has room for.
        on_progress: Gets the progress of each job in shards.

    Returns:
        None for this process: no engine is needed.

    Raises:
        RequestError: There is no such engine.
    """
    if workers is not None and workers < 1:
        raise RequestError(f"{workers} workers; it must be 1 or more")
    if on is None and workers is None:
        return None
    if on in (None, "local"):
        return Engine("local", workers or os.cpu_count() or 1, run_here, on_progress)
    if on == "slurm":
        return Engine(on, workers, slurm.run, on_progress)
    if on == "ray" or on.startswith("ray://"):
        return Engine(on, workers, functools.partial(ray_cluster.run, on), on_progress)
    raise RequestError(f"no engine {on!r}", hint=_HINT)


def run_here(job: Job, indexes: list[int], workers: int | None) -> Iterator[int]:
    """Run tasks in local processes, and yield each that is done; one worker is this process.

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
