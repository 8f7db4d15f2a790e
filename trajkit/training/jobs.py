"""Start, follow and end any job, on this machine or at a service."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from trajkit.errors import RequestError
from trajkit.training.job import Step, TuneJob
from trajkit.training.runs import Runs


def start(
    runs: Runs,
    job_id: str,
    *,
    on_progress: Callable[[str, int, int | None], None] = lambda what, n_done, n_total: None,
    on_message: Callable[[str], None] = lambda message: None,
) -> TuneJob:
    """Start a prepared job. A job that already runs or has succeeded is left alone.

    Args:
        runs: Folder of the jobs.
        job_id: Id of the job.
        on_progress: Called with the current upload, the amount sent, and the total.
        on_message: Called with messages about delays at a service.

    Raises:
        StackError: A training on this machine did not start.
        RequestError: A service may have the job already without listing it.
        ServiceError: The service refused, or cannot be reached.
    """
    if runs.load(job_id).is_here:
        return _do("start", runs, job_id)
    from trajkit.training.hosted.creation import Telling

    return _do("start", runs, job_id, telling=Telling(on_progress, on_message))


def follow(
    runs: Runs,
    job_id: str,
    *,
    on_step: Callable[[Step], None] = lambda step: None,
    on_message: Callable[[str], None] = lambda message: None,
    timeout_s: float | None = None,
) -> TuneJob:
    """Wait until a job has ended. Ctrl-C ends the wait, not the job.

    Args:
        runs: Folder of the jobs.
        job_id: Id of the job.
        on_step: Called with every loss, from the first one on.
        on_message: Called with messages of a service.
        timeout_s: Seconds to wait; None for no limit.

    Raises:
        TimeoutError: It has not ended by then.
        ServiceError: The service refused.
    """
    return _do("follow", runs, job_id, on_step=on_step, on_message=on_message, timeout_s=timeout_s)


def cancel(runs: Runs, job_id: str) -> TuneJob:
    """Cancel a job.

    Raises:
        RequestError: It has already ended.
        ServiceError: The service refused.
    """
    return _do("cancel", runs, job_id)


def pause(runs: Runs, job_id: str) -> TuneJob:
    """Pause a job at a service that supports it; `resume` continues it.

    Raises:
        RequestError: It runs on this machine, or its service cannot pause jobs.
        ServiceError: The service refused.
    """
    if runs.load(job_id).is_here:
        raise RequestError(
            f"job {job_id} runs on this machine, where jobs cannot be paused",
            hint="`trajkit jobs cancel` ends it, and `trajkit jobs resume` resumes from its last checkpoint",
        )
    return _do("pause", runs, job_id)


def resume(
    runs: Runs,
    job_id: str,
    *,
    again: bool = False,
    on_message: Callable[[str], None] = lambda message: None,
) -> TuneJob:
    """Resume a job: from its last checkpoint on this machine, or a paused one at a service.

    Args:
        runs: Folder of the jobs.
        job_id: Id of the job.
        again: Create it even if its service may have it already, which may cost twice.
        on_message: Called with messages about delays at a service.

    Raises:
        RequestError: It ended at a service, where a new one would cost again. Or the service may have it
            without listing it, and `again` is not given.
        ServiceError: The service refused.
    """
    if runs.load(job_id).is_here:
        return _do("start", runs, job_id)
    from trajkit.training.hosted.creation import Telling

    return _do("resume", runs, job_id, telling=Telling(message=on_message), again=again)


def refreshed(runs: Runs, job_id: str) -> TuneJob:
    """Return a job with its current state. The service is called for a job that has not ended.

    Raises:
        ServiceError: The service refused, or cannot be reached.
    """
    return _do("refreshed", runs, job_id)


def _do(verb: str, runs: Runs, job_id: str, **options: Any) -> TuneJob:
    """Call a function of the module that carries out the job, which is imported on demand."""
    place = "local.running" if runs.load(job_id).is_here else "hosted"
    launch = importlib.import_module(f"trajkit.training.{place}.launch")
    job: TuneJob = getattr(launch, verb)(runs, job_id, **options)
    return job
