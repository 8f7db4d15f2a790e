"""Start, follow and end a job at a service, from any process; uploads and creation happen once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from trajkit._core.lock import locked
from trajkit.errors import RequestError, ServiceError
from trajkit.training.hosted.answer import Unreachable
from trajkit.training.hosted.creation import Telling, created
from trajkit.training.hosted.outcome import take, without_files
from trajkit.training.hosted.remote import Remote, order_of
from trajkit.training.hosted.service import connect
from trajkit.training.job import JobStatus, Step, TuneJob
from trajkit.training.runs import Runs

LOCK = "service.lock"
FIRST_POLL_S, LONGEST_POLL_S = 2.0, 30.0
PATIENCE_S = 900.0
"""Seconds that a service may be unreachable before the wait ends. The job continues."""
_SLOWER = 1.5
_NOBODY = Telling()


def start(runs: Runs, job_id: str, *, telling: Telling = _NOBODY, again: bool = False) -> TuneJob:
    """Upload the rows of a prepared job and create it, once.

    A job that runs or succeeded is left alone. An existing job at the service is used, even when the process
    that created it died before it recorded that. A failed job is created again.

    Args:
        runs: Folder of the jobs.
        job_id: Id of the job.
        telling: Callbacks for progress and messages.
        again: Create the job even if the service may have it.

    Raises:
        RequestError: Another process starts the job, there is no key, or the service may have the job already
            and `again` is not given.
        ServiceError: The service refused, or cannot be reached.
    """
    with _only_here(runs, job_id):
        job = runs.load(job_id)
        if job.status in (JobStatus.RUNNING, JobStatus.SUCCEEDED):
            return job
        remote = Remote.of(job)
        service = connect(job.target, remote.settings)
        if job.status.is_final:  # starting it again means agreeing to pay again
            is_open = remote.is_asked_for and remote.state is None  # the service may have it
            update = {"state": None, "checkpoints": (), "fetched": (), "is_asked_for": is_open}
            remote = remote.model_copy(update=update)
        remote = remote.model_copy(update={"is_agreed": True})
        job = runs.save(remote.put_into(job, status=JobStatus.PREPARED, error=None, finished_at=None))
        found = created(runs, job, remote, service, telling, again=again)
        return take(runs, job_id, service, found)


def follow(
    runs: Runs,
    job_id: str,
    *,
    on_step: Callable[[Step], None] = lambda step: None,
    on_message: Callable[[str], None] = lambda message: None,
    timeout_s: float | None = None,
) -> TuneJob:
    """Poll until a job has ended, less often the longer nothing happens.

    Ctrl-C ends the wait, not the job.

    Args:
        runs: Folder of the jobs.
        job_id: Id of the job.
        on_step: Called with every loss, from the first one on.
        on_message: Called with the service's messages, and when it is unreachable.
        timeout_s: Seconds to wait; None for no limit.

    Raises:
        TimeoutError: It has not ended by then.
        RequestError: It was never created.
        ServiceError: The service refused, or was unreachable for `PATIENCE_S`.
    """
    begun = time.monotonic()
    reached, pause_s, n_seen, said = begun, FIRST_POLL_S, 0, ""
    while True:
        try:
            job = refreshed(runs, job_id)
        except Unreachable as error:
            job = runs.load(job_id)
            if time.monotonic() - reached > PATIENCE_S:
                hint = f"the job continues there; `trajkit jobs wait {job_id}` waits for it again"
                raise ServiceError(error.message, hint=hint) from error
            word = f"{error.message}; trying again"
        else:
            reached, word = time.monotonic(), _word(job)
        was_over = not said and job.status.is_final
        if word != said and not was_over:
            on_message(word)
        said = word
        events = runs.events(job_id, start=n_seen)
        n_seen += len(events)
        for event in events:
            _tell(event, on_step, (lambda message: None) if was_over else on_message)
        if job.status == JobStatus.PREPARED:
            with _lock(runs, job_id) as holder:  # of a process that works on it, such as on an upload
                if holder is None:
                    hint = f"`trajkit jobs resume {job_id}` creates it"
                    raise RequestError(f"job {job_id} was not created", hint=hint)
        if job.status.is_final:
            return job
        if timeout_s is not None and time.monotonic() - begun + pause_s > timeout_s:
            raise TimeoutError(f"job {job_id} is still {word} after {timeout_s:g} s")
        time.sleep(pause_s)
        pause_s = FIRST_POLL_S if events else min(pause_s * _SLOWER, LONGEST_POLL_S)


def _word(job: TuneJob) -> str:
    state = Remote.of(job).state
    if state is None:
        return job.status.value
    return f"{state.said}: `trajkit jobs resume {job.job_id}` resumes it" if state.is_paused else state.said


def _tell(
    event: dict[str, object], on_step: Callable[[Step], None], on_message: Callable[[str], None]
) -> None:
    if event.get("kind") == "step":
        on_step(Step(**{name: event.get(name) for name in Step._fields}))  # type: ignore[arg-type]
    elif event.get("message"):
        on_message(str(event["message"]))


def refreshed(runs: Runs, job_id: str) -> TuneJob:
    """Return a job with its current state, and record the service's news.

    Where another process does the same, the last recorded state is returned.

    Raises:
        ServiceError: The service refused, or cannot be reached.
    """
    with _lock(runs, job_id) as holder:
        job = runs.load(job_id)
        remote = Remote.of(job)
        is_done = job.status.is_final and (
            remote.state is None or set(remote.state.result_files) <= set(remote.fetched)
        )
        if holder is not None or is_done or not remote.is_agreed:
            return job
        service = connect(job.target, remote.settings)
        if remote.state is not None:
            found = remote.state if job.status.is_final else service.status(remote.state.remote_id)
            return take(runs, job_id, service, found)
        if not remote.is_asked_for:
            return job
        there = service.find(order_of(job, remote))
        return job if there is None else take(runs, job_id, service, there)


def cancel(runs: Runs, job_id: str) -> TuneJob:
    """Cancel a job for good, and remove its uploaded files.

    Raises:
        RequestError: It has already ended.
        ServiceError: The service refused.
    """
    job = refreshed(runs, job_id)
    if job.status.is_final:
        raise RequestError(f"job {job_id} has already ended: {job.status}")
    with _only_here(runs, job_id):
        remote = Remote.of(job)
        service = connect(job.target, remote.settings)
        if remote.state is not None:
            return take(runs, job_id, service, service.cancel(remote.state.remote_id))
        if remote.files:
            remote = without_files(remote, service)
        said = "it was cancelled"
        if remote.is_asked_for:
            said += f" here; it was requested from {service.where}, which does not list it: see its own page"
        return runs.save(remote.put_into(job, status=JobStatus.CANCELLED, error=said))


def pause(runs: Runs, job_id: str) -> TuneJob:
    """Pause a running job, at a service that supports it.

    Raises:
        RequestError: The service cannot, or the job does not run.
        ServiceError: The service refused.
    """
    job = refreshed(runs, job_id)
    remote = Remote.of(job)
    if job.status != JobStatus.RUNNING or remote.state is None:
        raise RequestError(f"job {job_id} is not running: it is {job.status}")
    service = connect(job.target, remote.settings)
    if not service.has_pause:
        raise RequestError(f"{service.target} cannot pause a job", hint=f"trajkit jobs cancel {job_id}")
    with _only_here(runs, job_id):
        return take(runs, job_id, service, service.pause(remote.state.remote_id))


def resume(runs: Runs, job_id: str, *, telling: Telling = _NOBODY, again: bool = False) -> TuneJob:
    """Resume a paused job, or one whose start was interrupted; arguments as for `start`.

    Raises:
        RequestError: The user has not agreed to it yet, or it has ended and a new one would cost again.
        ServiceError: The service refused.
    """
    job = refreshed(runs, job_id)
    remote = Remote.of(job)
    if job.status == JobStatus.PREPARED and remote.is_agreed:
        return start(runs, job_id, telling=telling, again=again)
    if job.status == JobStatus.SUCCEEDED:
        return job
    if job.status != JobStatus.RUNNING or remote.state is None:
        raise RequestError(
            f"job {job_id} is {job.status}: a new one would cost again",
            hint=f"`trajkit {job.method} {job.target}` with the same options shows the plan and asks",
        )
    if not remote.state.is_paused:
        return job
    service = connect(job.target, remote.settings)
    with _only_here(runs, job_id):
        return take(runs, job_id, service, service.resume(remote.state.remote_id))


@contextlib.contextmanager
def _lock(runs: Runs, job_id: str) -> Iterator[str | None]:
    runs.load(job_id)
    with locked(runs.path(job_id) / LOCK) as holder:
        yield holder


@contextlib.contextmanager
def _only_here(runs: Runs, job_id: str) -> Iterator[None]:
    with _lock(runs, job_id) as holder:
        if holder is not None:
            hint = f"wait, then `trajkit jobs show {job_id}`"
            raise RequestError(f"{holder} is busy with job {job_id}", hint=hint)
        yield
