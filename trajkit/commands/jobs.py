"""Fine-tuning jobs: list, show, wait for, end, halt and resume them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trajkit._core.settings import remembered
from trajkit.commands.place import Place
from trajkit.errors import MissingExtra, RequestError, ServiceError

if TYPE_CHECKING:
    from trajkit.training.job import TuneJob
    from trajkit.training.runs import Runs


class Found(NamedTuple):
    """A job, and where it is kept."""

    runs: Runs
    """The folder of jobs."""
    job_id: str
    """Its name."""


def find_job(job: str | None, runs_folder: Path) -> Found:
    """The job that is named, or the last one that was started here; checked to be there.

    Raises:
        RequestError: There is none.
    """
    from trajkit.training.runs import Runs

    runs = Runs(runs_folder)
    if job is None:
        last = remembered("last_job")
        if last is None:
            raise RequestError("no job was started here", hint="`trajkit jobs list` names those in a folder")
        runs, job = Runs(Path(last["runs"])), last["job_id"]
    runs.load(job)
    return Found(runs, job)


def jobs_list(*, runs: Place = "runs") -> list[TuneJob]:
    """Every job, the newest first; one whose service cannot be asked is as it was last seen.

    Args:
        runs: The folder where jobs are kept.
    """
    from trajkit.training.jobs import refreshed
    from trajkit.training.runs import Runs

    kept, found = Runs(Path(runs)), []
    for job in kept.all():
        try:
            found.append(refreshed(kept, job.job_id))
        except (ServiceError, RequestError, MissingExtra):
            found.append(job)
    return found


def jobs_show(job: str | None = None, *, runs: Place = "runs") -> TuneJob:
    """A job as it is now.

    Args:
        job: Its name; None for the last that was started here.
        runs: The folder where jobs are kept.

    Raises:
        RequestError: There is none.
        ServiceError: Its service does not tell.
    """
    from trajkit.training.jobs import refreshed

    return refreshed(*find_job(job, Path(runs)))


def jobs_wait(job: str | None = None, *, runs: Place = "runs", timeout: float | None = None) -> TuneJob:
    """Wait until a job has ended; how it ended is told, not raised. A stop does not stop the job.

    Args:
        job: Its name; None for the last that was started here.
        runs: The folder where jobs are kept.
        timeout: Give up waiting after so many seconds.

    Raises:
        RequestError: There is none, or it has not ended in time.
        ServiceError: Its service does not tell.
    """
    from trajkit.training.jobs import follow

    found = find_job(job, Path(runs))
    try:
        return follow(*found, timeout_s=timeout)
    except TimeoutError as error:
        raise RequestError(str(error), hint=f"trajkit jobs wait {found.job_id}") from error


def jobs_cancel(job: str | None = None, *, runs: Place = "runs") -> TuneJob:
    """End a job. One on this machine can be resumed; at a service it is over.

    Args:
        job: Its name; None for the last that was started here.
        runs: The folder where jobs are kept.

    Raises:
        RequestError: There is none, or it has ended already.
        ServiceError: Its service refused.
    """
    from trajkit.training.jobs import cancel

    return cancel(*find_job(job, Path(runs)))


def jobs_pause(job: str | None = None, *, runs: Place = "runs") -> TuneJob:
    """Halt a job at a service that can do that; `jobs_resume` goes on with it.

    Args:
        job: Its name; None for the last that was started here.
        runs: The folder where jobs are kept.

    Raises:
        RequestError: It runs on this machine, or its service cannot.
    """
    from trajkit.training.jobs import pause

    return pause(*find_job(job, Path(runs)))


def jobs_resume(
    job: str | None = None, *, runs: Place = "runs", again: bool = False, detach: bool = False
) -> TuneJob:
    """Go on with a job: here from its last checkpoint, at a service with what was halted or cut off.

    Args:
        job: Its name; None for the last that was started here.
        runs: The folder where jobs are kept.
        again: Create a job anew whose service may have it already: it may be paid for twice.
        detach: Do not wait for its end.

    Raises:
        RequestError: There is none, it ended at a service, or its service may have it without listing it.
        ServiceError: Its service refused.
    """
    from trajkit.training.jobs import follow, resume

    found = find_job(job, Path(runs))
    resumed = resume(*found, again=again)
    return resumed if detach else follow(*found)
