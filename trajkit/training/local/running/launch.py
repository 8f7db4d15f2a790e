"""Start, follow and cancel a training on this machine, from any process."""

from __future__ import annotations

import time
from collections.abc import Callable

from trajkit.errors import RequestError
from trajkit.stack.process import Process, end, start_module
from trajkit.training.job import JobStatus, Step, TuneJob
from trajkit.training.local.running.worker import LOCK
from trajkit.training.runs import Runs

LOG = "worker.log"
_POLL_S = 0.2
_START_S = 60.0


def start(runs: Runs, job_id: str) -> TuneJob:
    """Start a prepared, cancelled or failed job in its own process.

    A job that already runs or has succeeded is left alone.

    Raises:
        StackError: The process did not start; the message has the last lines of its log.
    """
    job = refreshed(runs, job_id)
    if job.status in (JobStatus.RUNNING, JobStatus.SUCCEEDED):
        return job
    folder = runs.path(job_id).absolute()
    runs.save(job.model_copy(update={"status": JobStatus.RUNNING, "error": None, "finished_at": None}))

    def has_begun(process: Process) -> bool | None:
        lock = folder / LOCK
        is_locked = lock.is_file() and lock.read_text(encoding="ascii").strip() == str(process.pid)
        return True if is_locked else None

    process, _ = start_module(
        "trajkit.training.local.running.worker",
        [str(runs.folder.absolute()), job_id],
        log=folder / LOG,
        is_ready=has_begun,
        what="the training",
        timeout_s=_START_S,
    )
    return runs.save(runs.load(job_id).model_copy(update={"process": process}))


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
        on_message: Called with other messages, such as that batches are made smaller.
        timeout_s: Seconds to wait; None for no limit.

    Raises:
        TimeoutError: It has not ended by then.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    n_seen = 0
    while True:
        job = refreshed(runs, job_id)  # before the events, so that the last events are not missed
        events = runs.events(job_id, start=n_seen)
        n_seen += len(events)
        for event in events:
            kind = event.pop("kind")
            if kind == "step":
                on_step(Step(**event))
            elif kind == "message":
                on_message(event["message"])
        if job.status != JobStatus.RUNNING:
            return job
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError(f"job {job_id} still runs after {timeout_s:g} s")
        time.sleep(_POLL_S)


def cancel(runs: Runs, job_id: str) -> TuneJob:
    """Cancel a job; `start` resumes it from its last checkpoint.

    Raises:
        RequestError: It has already ended.
    """
    job = refreshed(runs, job_id)
    if job.status.is_final:
        raise RequestError(f"job {job_id} has already ended: {job.status}")
    if job.process is not None:
        end(job.process)
    job = runs.load(job_id)
    if job.status.is_final:
        return job
    return runs.save(job.model_copy(update={"status": JobStatus.CANCELLED, "error": "it was cancelled"}))


def refreshed(runs: Runs, job_id: str) -> TuneJob:
    """Return a job with its current status: it has failed if its process ended without a result."""
    job = runs.load(job_id)
    if job.status != JobStatus.RUNNING or job.process is None or job.process.is_running:
        return job
    job = runs.load(job_id)  # the process may have written its result in between
    if job.status != JobStatus.RUNNING:
        return job
    log = runs.path(job_id) / LOG
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.is_file() else []
    last = lines[-1][-200:] if lines else "its log is empty"
    error = f"its process is gone ({last}); resume it to continue"
    return runs.save(job.model_copy(update={"status": JobStatus.FAILED, "error": error}))
