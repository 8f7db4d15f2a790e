"""Upload the rows of a job and create it at a service: what must not happen twice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from trajkit.errors import ServiceError
from trajkit.targets.hosted.failure import Unreachable
from trajkit.targets.hosted.outcome import still_there, without_files
from trajkit.targets.hosted.remote import Remote, order_of
from trajkit.targets.hosted.rows import TRAIN, VALIDATION, uploaded_rows
from trajkit.targets.hosted.service import Service, State
from trajkit.targets.job import JobStatus, TuneJob
from trajkit.targets.runs import Runs

Progress = Callable[[str, int, int | None], None]
"""Is told what is being done, how far it is, and of how much (None when unknown)."""


def created(runs: Runs, job: TuneJob, remote: Remote, service: Service, on_progress: Progress) -> State:
    """Upload what is not there yet and create the job, once, with what is known written down on the way.

    The caller holds the job's lock, and has looked whether the service has the job already.

    Raises:
        ServiceError: The service refused; the job has failed then, and nothing of it stays there. Where the
            network is at fault (`Unreachable`), starting again goes on.
    """
    remote = _uploaded(runs, job, remote, service, on_progress)
    remote = remote.model_copy(update={"is_asked_for": True})
    runs.save(remote.put_into(job))
    order = order_of(job, remote)
    try:
        return service.create(order)
    except Unreachable as error:
        with contextlib.suppress(ServiceError):  # the answer may be lost, and the job there
            if (found := service.find(order)) is not None:
                return found
        raise _cut_off(error, job, "creating the job") from error
    except ServiceError as error:
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
    remote = without_files(remote.model_copy(update={"is_asked_for": False}), service)
    runs.save(remote.put_into(job, status=JobStatus.FAILED, error=error.message))
    hint = "; ".join(words for words in (error.hint, still_there(remote)) if words)
    return ServiceError(error.message, hint=hint or None)
