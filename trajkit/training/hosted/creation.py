"""Upload the rows of a job and create it at a service: what must not happen twice."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from trajkit._core.files import write_text
from trajkit._core.lock import locked
from trajkit.errors import RequestError, ServiceError
from trajkit.schema import Model
from trajkit.schema.base import UtcTime
from trajkit.training.hosted.answer import Uncertain, Unreachable
from trajkit.training.hosted.outcome import still_there, without_files
from trajkit.training.hosted.remote import Remote, order_of
from trajkit.training.hosted.rows import TRAIN, VALIDATION, uploaded_rows
from trajkit.training.hosted.service import PLAIN, Order, RemoteId, Service, State
from trajkit.training.job import JobStatus, TuneJob
from trajkit.training.runs import Runs

Progress = Callable[[str, int, int | None], None]
"""Is told what is being done, how far it is, and of how much (None when unknown)."""
FIRST_LOOK_S, _LONGEST_LOOK_S, _SLOWER = 0.5, 5.0, 1.5
_PATIENCE_S, _POLL_S = 900.0, 0.2


class Telling(NamedTuple):
    """Who is told what happens."""

    progress: Progress = lambda what, n_done, n_total: None
    """Of what is being done."""
    message: Callable[[str], None] = lambda message: None
    """Of what takes longer than expected, in words that stay."""


def created(
    runs: Runs, job: TuneJob, remote: Remote, service: Service, telling: Telling, *, again: bool
) -> State:
    """The job at the service: the one that is there already, or a new one, with every step written down.

    The caller holds the job's lock. A service that would make the same job twice is asked once: what it has
    not listed yet is waited for, and what may be there is not asked for again without `again`.

    Args:
        runs: Where the job is kept.
        job: The job.
        remote: Its life at the service.
        service: Who trains.
        telling: Who is told.
        again: Create it even where the service may have it.

    Raises:
        Uncertain: It was asked for before, and the service does not list it.
        ServiceError: The service refused; the job has failed then, and nothing of it stays there. Where the
            network is at fault (`Unreachable`), starting again goes on.
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
    """The job where the service has it; None where it was never asked for, or has ended without a model."""
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
        f"{service.where} was asked for this job {when} and does not list it: another may be paid for twice",
        hint=f"look on the service's own page; `trajkit jobs resume {job.job_id} --again` makes another",
    )


def _looked_for(
    service: Service, order: Order, until: datetime, on_message: Callable[[str], None]
) -> State | None:
    """Look for a job until the service must have listed it; the last look may raise."""
    pause_s, is_told = FIRST_LOOK_S, False
    while (left_s := (until - datetime.now(UTC)).total_seconds()) > 0:
        with contextlib.suppress(Unreachable):
            if (found := service.find(order)) is not None:
                return found
        if not is_told:
            on_message(f"looking whether {service.where} has the job: it may list it late, in {left_s:.0f} s")
            is_told = True
        time.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * _SLOWER, _LONGEST_LOOK_S)
    return service.find(order)


def _new(
    runs: Runs, job: TuneJob, remote: Remote, service: Service, claims: Claims, telling: Telling
) -> State:
    """Ask for the job, once."""
    order = order_of(job, remote)
    try:
        return service.create(order)
    except Unreachable as error:
        if error.is_undone:
            claims.drop()
            runs.save(remote.model_copy(update={"is_asked_for": False, "asked_at": None}).put_into(job))
            raise _cut_off(error, job, "creating the job") from error
        if error.answer is not None:  # of a job that may be paid for: a person may read what we cannot
            told = {"kind": "message", "level": "error", "message": error.message, "answer": error.answer}
            runs.add_event(job.job_id, told)
        runs.save(remote.put_into(job, error=error.message))
        lag_s = service.listing_lag_s or 0.0
        until = datetime.now(UTC) + timedelta(seconds=lag_s)
        with contextlib.suppress(ServiceError):  # the answer may be lost, and the job there
            if (found := _looked_for(service, order, until, telling.message)) is not None:
                runs.save(remote.put_into(job))
                return found
        raise _cut_off(error, job, "creating the job") from error
    except ServiceError as error:
        claims.drop()
        raise _refused(runs, job, remote, service, error) from error


def _uploaded(runs: Runs, job: TuneJob, remote: Remote, service: Service, on_progress: Progress) -> Remote:
    """Send what is not there yet; each id is written down at once."""
    for side in (TRAIN, VALIDATION) if job.validation is not None else (TRAIN,):
        if getattr(remote, f"{side}_file") is not None:
            continue
        path = uploaded_rows(runs.path(job.job_id), side)
        what = f"uploading {path.name}"
        on_progress(what, 0, None)
        try:
            file_id = service.upload(path, on_sent=lambda n, of, what=what: on_progress(what, n, of))  # type: ignore[misc]
            if not re.fullmatch(PLAIN, file_id):
                raise ServiceError(f"{service.where} calls {path.name} {file_id!r}, which cannot be an id")
        except Unreachable as error:
            raise _cut_off(error, job, "the upload") from error
        except ServiceError as error:
            raise _refused(runs, job, remote, service, error) from error
        remote = remote.model_copy(update={f"{side}_file": file_id})
        runs.save(remote.put_into(job))
    return remote


def _cut_off(error: ServiceError, job: TuneJob, what: str) -> Unreachable:
    return Unreachable(
        f"{what} was cut off: {error.message}",
        hint=f"`trajkit jobs resume {job.job_id}` goes on, and looks first whether there is a job already",
    )


def _refused(runs: Runs, job: TuneJob, remote: Remote, service: Service, error: ServiceError) -> ServiceError:
    """The error of a service that will not have the job; nothing of it stays there."""
    remote = remote.model_copy(update={"is_asked_for": False, "asked_at": None})
    remote = without_files(remote, service)
    runs.save(remote.put_into(job, status=JobStatus.FAILED, error=error.message))
    hint = "; ".join(words for words in (error.hint, still_there(remote)) if words)
    return ServiceError(error.message, hint=hint or None)


class Claim(Model):
    """That a job was asked for."""

    asked_at: UtcTime
    """When."""
    remote_id: RemoteId | None = None
    """The service's id of it; None while its answer is not known."""


class Claims:
    """The claim on one job; the folder of claims is the user's own, whatever folder a job was asked for from.

    A service may take a while to list a new job: until then a second folder can learn of it only here.

    Args:
        key: What the job is a job of: the same in every folder.
    """

    def __init__(self, key: str) -> None:
        state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        self._path = Path(state).expanduser() / "trajkit" / "asked" / f"{key}.json"

    @contextlib.contextmanager
    def alone(self, on_message: Callable[[str], None]) -> Iterator[None]:
        """Hold the job for the time of a block; waits for another process that does.

        Raises:
            RequestError: The other one does not end, or nothing can be written here.
        """
        folder = self._path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise _unwritable(folder, error.strerror) from error
        if not os.access(folder, os.W_OK):
            raise _unwritable(folder, "permission denied")
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
        """What is known; None where nothing is."""
        try:
            return Claim.model_validate_json(self._path.read_text(encoding="utf-8"))
        except (OSError, ValidationError, UnicodeDecodeError):
            return None

    def write(self, asked_at: datetime, remote_id: str | None = None) -> None:
        """Say that the job was asked for, before and after it was."""
        write_text(self._path, Claim(asked_at=asked_at, remote_id=remote_id).model_dump_json() + "\n")

    def drop(self) -> None:
        """Say that the service did not take it."""
        self._path.unlink(missing_ok=True)


def _unwritable(folder: Path, why: str | None) -> RequestError:
    return RequestError(
        f"{folder} cannot be written: {why}",
        hint="XDG_STATE_HOME names another folder; what is there keeps a job from being paid for twice",
    )
