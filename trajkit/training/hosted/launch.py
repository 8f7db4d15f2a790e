"""Start, follow and end a job at a service, from any process: uploaded once, created once, paid for once."""

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
from trajkit.training.hosted.service import Service, State
from trajkit.training.hosted.services import connect
from trajkit.training.job import JobStatus, TuneJob
from trajkit.training.runs import Runs
from trajkit.training.step import Step

LOCK = "service.lock"
FIRST_POLL_S, LONGEST_POLL_S = 2.0, 30.0
PATIENCE_S = 900.0
"""So long a service may be out of reach before the waiting ends. The job goes on meanwhile."""
_SLOWER = 1.5
_NOBODY = Telling()


def start(runs: Runs, job_id: str, *, telling: Telling = _NOBODY, again: bool = False) -> TuneJob:
    """Upload the rows of a prepared job and create it, once.

    A job that runs or succeeded is left alone. One that the service has already is taken up, also when the
    process that created it died before it could write that down. One that failed is created anew.

    Args:
        runs: Where jobs are kept.
        job_id: Which.
        telling: Who is told what happens.
        again: Create it even where the service may have it already.

    Raises:
        RequestError: Another process does this, there is no key, or the service may have the job already and
            `again` is not given.
        ServiceError: The service refused, or cannot be reached.
    """
    with _only_here(runs, job_id):
        job = runs.load(job_id)
        if job.status in (JobStatus.RUNNING, JobStatus.SUCCEEDED):
            return job
        remote = Remote.of(job)
        service = connect(job.target, remote.settings)
        if job.status.is_final:  # whoever asks again has agreed to pay again
            is_open = remote.is_asked_for and remote.state is None  # it may be there
            update = {"state": None, "checkpoints": (), "fetched": (), "is_asked_for": is_open}
            remote = remote.model_copy(update=update)
        remote = remote.model_copy(update={"is_agreed": True})
        job = _saved(runs, remote.put_into(job, status=JobStatus.PREPARED, error=None, finished_at=None))
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
    """Ask again and again until a job has ended, more seldom the longer nothing happens.

    Whoever stops waiting (Ctrl-C) does not stop the job.

    Args:
        runs: Where jobs are kept.
        job_id: Which.
        on_step: Told of every loss, from the first one on.
        on_message: Told what the service says, and when it is out of reach.
        timeout_s: Seconds to wait; None for as long as it takes.

    Raises:
        TimeoutError: It has not ended by then.
        RequestError: It was never created.
        ServiceError: The service refused to tell, or was out of reach for `PATIENCE_S`.
    """
    begun = time.monotonic()
    reached, pause_s, n_seen, said = begun, FIRST_POLL_S, 0, ""
    while True:
        try:
            job = refreshed(runs, job_id)
        except Unreachable as error:
            job = runs.load(job_id)
            if time.monotonic() - reached > PATIENCE_S:
                hint = f"it goes on there; `trajkit jobs wait {job_id}` waits for it again"
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
        if job.status == JobStatus.PREPARED and not _is_busy(runs, job_id):
            raise RequestError(
                f"job {job_id} was not created", hint=f"`trajkit jobs resume {job_id}` goes on with it"
            )
        if job.status.is_final:
            return job
        if timeout_s is not None and time.monotonic() - begun + pause_s > timeout_s:
            raise TimeoutError(f"job {job_id} is {word} still after {timeout_s:g} s")
        time.sleep(pause_s)
        pause_s = FIRST_POLL_S if events else min(pause_s * _SLOWER, LONGEST_POLL_S)


def _word(job: TuneJob) -> str:
    state = Remote.of(job).state
    if state is None:
        return job.status.value
    return f"{state.said}: `trajkit jobs resume {job.job_id}` goes on" if state.is_paused else state.said


def _tell(
    event: dict[str, object], on_step: Callable[[Step], None], on_message: Callable[[str], None]
) -> None:
    if event.get("kind") == "step":
        on_step(Step(**{name: event.get(name) for name in Step._fields}))  # type: ignore[arg-type]
    elif event.get("message"):
        on_message(str(event["message"]))


def refreshed(runs: Runs, job_id: str) -> TuneJob:
    """A job as it is now; what the service has told meanwhile is written down.

    Where another process does the same, what that one wrote last is given.

    Raises:
        ServiceError: The service refused to tell, or cannot be reached.
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
    """End a job for good, and remove what was uploaded for it.

    Raises:
        RequestError: It has ended already.
        ServiceError: The service refused.
    """
    job = refreshed(runs, job_id)
    if job.status.is_final:
        raise RequestError(f"job {job_id} is {job.status} already")
    with _only_here(runs, job_id):
        remote = Remote.of(job)
        service = connect(job.target, remote.settings)
        if remote.state is not None:
            return take(runs, job_id, service, service.cancel(remote.state.remote_id))
        if remote.files:
            remote = without_files(remote, service)
        said = "it was cancelled"
        if remote.is_asked_for:
            said += f" here; {service.where} was asked for it and does not list it: look on its own page"
        return _saved(runs, remote.put_into(job, status=JobStatus.CANCELLED, error=said))


def pause(runs: Runs, job_id: str) -> TuneJob:
    """Halt a running job, at a service that can do that.

    Raises:
        RequestError: The service cannot, or the job does not run.
        ServiceError: The service refused.
    """
    job, service, state = _running(runs, job_id)
    if not service.has_pause:
        raise RequestError(f"{service.target} cannot halt a job", hint=f"trajkit jobs cancel {job_id}")
    with _only_here(runs, job_id):
        return take(runs, job.job_id, service, service.pause(state.remote_id))


def resume(runs: Runs, job_id: str, *, telling: Telling = _NOBODY, again: bool = False) -> TuneJob:
    """Go on with a job that was halted, or whose start was cut off; arguments as with `start`.

    Raises:
        RequestError: Nobody agreed to it yet, or it has ended: another one would be paid for.
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
            f"job {job_id} is {job.status}: a new one would be paid for",
            hint=f"`trajkit {job.method} {job.target}` with the same options shows the plan and asks",
        )
    if not remote.state.is_paused:
        return job
    service = connect(job.target, remote.settings)
    with _only_here(runs, job_id):
        return take(runs, job_id, service, service.resume(remote.state.remote_id))


def _running(runs: Runs, job_id: str) -> tuple[TuneJob, Service, State]:
    job = refreshed(runs, job_id)
    remote = Remote.of(job)
    if job.status != JobStatus.RUNNING or remote.state is None:
        raise RequestError(f"job {job_id} is {job.status}: it does not run")
    return job, connect(job.target, remote.settings), remote.state


def _is_busy(runs: Runs, job_id: str) -> bool:
    """Whether another process is at work on a job: it may be uploading."""
    with _lock(runs, job_id) as holder:
        return holder is not None


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


def _saved(runs: Runs, job: TuneJob) -> TuneJob:
    runs.save(job)
    return job
