"""Upload the rows of a job and create it at a service, each exactly once."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pydantic import ValidationError

from trajkit._core.files import write_text
from trajkit._core.lock import locked
from trajkit._core.user_state import make_writable, user_state
from trajkit.errors import RequestError, ServiceError
from trajkit.schema import Model
from trajkit.schema.base import UtcTime
from trajkit.training.hosted.answer import Uncertain, Unreachable
from trajkit.training.hosted.outcome import still_there, without_files
from trajkit.training.hosted.prepare import TRAIN, VALIDATION, uploaded_rows
from trajkit.training.hosted.remote import Remote, order_of
from trajkit.training.hosted.service import PLAIN, Order, RemoteId, Service, State
from trajkit.training.job import JobStatus, TuneJob
from trajkit.training.runs import Runs

Progress = Callable[[str, int, int | None], None]
"""Called with the current phase, the amount done, and the total (None when unknown)."""
FIRST_LOOK_S, _LONGEST_LOOK_S, _SLOWER = 0.5, 5.0, 1.5
_PATIENCE_S, _POLL_S = 900.0, 0.2


class Telling(NamedTuple):
    """The callbacks for progress and messages."""

    progress: Progress = lambda what, n_done, n_total: None
    """Called with the progress."""
    message: Callable[[str], None] = lambda message: None
    """Called with messages about delays."""


def created(
    runs: Runs, job: TuneJob, remote: Remote, service: Service, telling: Telling, *, again: bool
) -> State:
    """Return the job at the service: an existing one, or a new one, with every step recorded.

    The caller holds the job's lock. A service that could create the job twice gets one request. If that may
    have succeeded without a listed job, `again` is needed to send another one.

    Args:
        runs: Folder of the jobs.
        job: The job.
        remote: Its state at the service.
        service: The service.
        telling: Callbacks for progress and messages.
        again: Create the job even if the service may have it.

    Raises:
        Uncertain: The job was requested before, and the service does not list it.
        ServiceError: The service refused; then the job has failed, and its files there are removed. After a
            network failure (`Unreachable`), another start resumes.
    """
    claims = Claims(job.key)
    with claims.alone(telling.message):
        order = order_of(job, remote)
        found = _there(job, remote, service, order, claims, telling, again=again)
        if found is None:
            remote = _uploaded(runs, job, remote, service, telling.progress)
            asked_at = datetime.now(UTC)
            remote = remote.model_copy(update={"is_asked_for": True, "asked_at": asked_at})
            runs.save(remote.put_into(job))
            claims.write(asked_at)
            found = _new(runs, job, remote, service, claims, telling)
        claims.write(remote.asked_at or datetime.now(UTC), found.remote_id)
        return found


def _there(
    job: TuneJob,
    remote: Remote,
    service: Service,
    order: Order,
    claims: Claims,
    telling: Telling,
    *,
    again: bool,
) -> State | None:
    """Return the job at the service; None if it was never requested, or ended without a model."""
    if (found := service.find(order)) is not None:
        return found
    claim, lag_s = claims.read(), service.listing_lag_s
    asked_at = remote.asked_at if claim is None else claim.asked_at
    if claim is not None and claim.remote_id is not None:
        with contextlib.suppress(ServiceError):
            known = service.status(claim.remote_id)
            return None if known.status in (JobStatus.FAILED, JobStatus.CANCELLED) else known
    if lag_s is None or (claim is None and not remote.is_asked_for):
        return None
    until = None if asked_at is None else asked_at + timedelta(seconds=lag_s)
    found = None if until is None else _looked_for(service, order, until, telling.message)
    if found is not None or again:
        return found
    when = "before" if asked_at is None else f"at {asked_at:%Y-%m-%d %H:%M} UTC"
    raise Uncertain(
        f"this job was requested from {service.where} {when} and is not listed: another one may cost twice",
        hint=f"look at the service's own page; `trajkit jobs resume {job.job_id} --again` creates another",
    )


def _looked_for(
    service: Service, order: Order, until: datetime, on_message: Callable[[str], None]
) -> State | None:
    """Look for a job until the service must have listed it; the last attempt may raise."""
    pause_s, is_told = FIRST_LOOK_S, False
    while (left_s := (until - datetime.now(UTC)).total_seconds()) > 0:
        with contextlib.suppress(Unreachable):
            if (found := service.find(order)) is not None:
                return found
        if not is_told:
            on_message(f"checking whether {service.where} has the job, for up to {left_s:.0f} s")
            is_told = True
        time.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * _SLOWER, _LONGEST_LOOK_S)
    return service.find(order)


def _new(
    runs: Runs, job: TuneJob, remote: Remote, service: Service, claims: Claims, telling: Telling
) -> State:
    """Send the request for the job, once."""
    order = order_of(job, remote)
    try:
        return service.create(order)
    except Unreachable as error:
        if error.is_undone:
            claims.drop()
            runs.save(remote.model_copy(update={"is_asked_for": False, "asked_at": None}).put_into(job))
            raise _cut_off(error, job, "creating the job") from error
        if error.answer is not None:  # the job may exist and cost money, so keep the answer for the user
            event = {"kind": "message", "level": "error", "message": error.message, "answer": error.answer}
            runs.add_event(job.job_id, event)
        runs.save(remote.put_into(job, error=error.message))
        lag_s = service.listing_lag_s or 0.0
        until = datetime.now(UTC) + timedelta(seconds=lag_s)
        with contextlib.suppress(ServiceError):  # the answer may be lost although the job exists
            if (found := _looked_for(service, order, until, telling.message)) is not None:
                runs.save(remote.put_into(job))
                return found
        raise _cut_off(error, job, "creating the job") from error
    except ServiceError as error:
        claims.drop()
        raise _refused(runs, job, remote, service, error) from error


def _uploaded(runs: Runs, job: TuneJob, remote: Remote, service: Service, on_progress: Progress) -> Remote:
    """Upload the files that are not uploaded yet; each id is recorded at once."""
    for side in (TRAIN, VALIDATION) if job.validation is not None else (TRAIN,):
        if getattr(remote, f"{side}_file") is not None:
            continue
        path = uploaded_rows(runs.path(job.job_id), side)
        what = f"uploading {path.name}"
        on_progress(what, 0, None)
        try:
            file_id = service.upload(path, on_sent=lambda n, of, what=what: on_progress(what, n, of))  # type: ignore[misc]
            if not re.fullmatch(PLAIN, file_id):
                raise ServiceError(f"{service.where} gave {path.name} the invalid id {file_id!r}")
        except Unreachable as error:
            raise _cut_off(error, job, "the upload") from error
        except ServiceError as error:
            raise _refused(runs, job, remote, service, error) from error
        remote = remote.model_copy(update={f"{side}_file": file_id})
        runs.save(remote.put_into(job))
    return remote


def _cut_off(error: ServiceError, job: TuneJob, what: str) -> Unreachable:
    return Unreachable(
        f"{what} was interrupted: {error.message}",
        hint=f"`trajkit jobs resume {job.job_id}` resumes, and first checks whether the job exists",
    )


def _refused(runs: Runs, job: TuneJob, remote: Remote, service: Service, error: ServiceError) -> ServiceError:
    """Record the refusal of a job, remove its files, and return the error."""
    remote = remote.model_copy(update={"is_asked_for": False, "asked_at": None})
    remote = without_files(remote, service)
    runs.save(remote.put_into(job, status=JobStatus.FAILED, error=error.message))
    hint = "; ".join(words for words in (error.hint, still_there(remote)) if words)
    return ServiceError(error.message, hint=hint or None)


class Claim(Model):
    """A record that a job was requested."""

    asked_at: UtcTime
    """Time of the request."""
    remote_id: RemoteId | None = None
    """The service's id of the job; None while its answer is unknown."""


class Claims:
    """The claim on one job, in a folder of the user that all working folders share.

    A service may list a new job late. Until then, other working folders know it only from the claim.

    Args:
        key: Key of the job's plan, equal in every folder.
    """

    def __init__(self, key: str) -> None:
        self._path = user_state("asked") / f"{key}.json"

    @contextlib.contextmanager
    def alone(self, on_message: Callable[[str], None]) -> Iterator[None]:
        """Lock the job in the block, and wait for another process that has the lock.

        Raises:
            RequestError: The other process does not end, or the folder cannot be written.
        """
        make_writable(self._path.parent)
        for n_tries in range(round(_PATIENCE_S / _POLL_S)):
            with locked(self._path.with_suffix(".lock")) as holder:
                if holder is None:
                    yield
                    return
            if n_tries == 0:
                on_message(f"{holder} is creating the same job: waiting for it")
            time.sleep(_POLL_S)
        raise RequestError(f"{holder} is still creating the same job", hint="wait until it has ended")

    def read(self) -> Claim | None:
        """Return the claim; None if there is none."""
        try:
            return Claim.model_validate_json(self._path.read_text(encoding="utf-8"))
        except (OSError, ValidationError, UnicodeDecodeError):
            return None

    def write(self, asked_at: datetime, remote_id: str | None = None) -> None:
        """Record the request, before and after it is sent."""
        write_text(self._path, Claim(asked_at=asked_at, remote_id=remote_id).model_dump_json() + "\n")

    def drop(self) -> None:
        """Delete the claim: the service did not take the job."""
        self._path.unlink(missing_ok=True)
