"""Run tasks on a Ray cluster, which starts them again when a worker or a node dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trajkit._core.lazy import need
from trajkit.engines.job import Job, opened
from trajkit.errors import ServiceError, TrajkitError


def run(address: str, job: Job, indexes: list[int], workers: int | None) -> Iterator[int]:
    """Run tasks at `ray` (the local cluster, or a new one) or `ray://HOST:PORT`; yield each done.

    Raises:
        TrajkitError: A task failed, or died more often than Ray starts one again.
        ServiceError: The cluster cannot be reached.
        MissingExtra: Ray is not installed.
    """
    ray = connected(address, workers)
    task = ray.remote(_task)
    waiting = list(reversed(indexes))
    running: dict[Any, int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < (workers or len(indexes)):
                index = waiting.pop()
                named = task.options(name=job.named(index), num_cpus=1)
                running[named.remote(str(job.folder), index)] = index
            (done, *_), _ = ray.wait(list(running), num_returns=1)
            index = running.pop(done)
            try:
                ray.get(done)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except ray.exceptions.RayError as error:
                raise TrajkitError(
                    f"{job.named(index)}: the worker died: {str(error).splitlines()[0]}",
                    hint="memory may be too small; the same command continues with the shards that are done",
                ) from error
            yield index
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def connected(address: str, workers: int | None = None) -> Any:
    """Return the module `ray`, connected; the connection stays until the process ends.

    Raises:
        ServiceError: The cluster cannot be reached.
        MissingExtra: Ray is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when Ray is imported
    ray = need("ray", extra="ray")
    if ray.is_initialized():
        return ray
    quiet = {"logging_level": "error", "log_to_driver": False}
    try:
        if address != "ray":
            ray.init(address, **quiet)
            return ray
        try:
            ray.init("auto", **quiet)
        except ConnectionError:  # none runs on this machine
            ray.init("local", num_cpus=workers, include_dashboard=False, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ServiceError(
            f"the Ray cluster at {address} cannot be reached: {str(error).splitlines()[0]}",
            hint="`ray status` there shows whether it runs; both need the same versions of Ray and Python",
        ) from error
    return ray


def _task(folder: str, index: int) -> None:
    opened(Path(folder)).run(index)
