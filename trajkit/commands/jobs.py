"""List, watch, end and resume fine-tuning jobs, from any terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from trajkit._core.output.console import Cell, Meter, can_ask, confirm, table_text, talk
from trajkit._core.output.result import Result
from trajkit.commands.options.types import Option, RunsFolder
from trajkit.commands.place import last_job
from trajkit.errors import MissingExtra, RequestError, ServiceError

if TYPE_CHECKING:
    from trajkit.training.job import Step, TuneJob
    from trajkit.training.runs import Runs

_MOST_TOLD = 5


class Jobs(Result, list["TuneJob"]):
    """Jobs, the newest first."""

    def to_json(self) -> list[dict[str, Any]]:
        """The jobs as their `job.json` keeps them."""
        return [job.to_json() for job in self]

    def __str__(self) -> str:
        headings = ("job", "status", "target", "model", "since (UTC)", "outcome")
        rows = [
            (job.job_id, job.status, job.target, job.base, f"{job.created_at:%Y-%m-%d %H:%M}", job.outcome)
            for job in self
        ]
        return table_text([Cell(heading) for heading in headings], rows)


def jobs_list(*, runs: RunsFolder = "runs") -> Jobs:
    """List every job, the newest first.

    A job whose service cannot be reached is listed as it was last seen.

    Args:
        runs: Folder where jobs are kept.
    """
    from trajkit.training.jobs import refreshed
    from trajkit.training.runs import Runs

    kept, found = Runs(Path(runs)), Jobs()
    for job in kept.all():
        try:
            found.append(refreshed(kept, job.job_id))
        except (ServiceError, RequestError, MissingExtra) as error:
            talk(f"{job.job_id}: as it was last seen: {error.message}")
            found.append(job)
    return found


def jobs_show(job: str | None = None, *, runs: RunsFolder = "runs") -> TuneJob:
    """Show the current state of JOB.

    Args:
        job: Name of the job. Default: the last job that was started here.
        runs: Folder where jobs are kept.

    Raises:
        RequestError: There is no such job.
        ServiceError: The service of the job does not answer.
    """
    from trajkit.training.jobs import refreshed

    where, job_id = _find(job, Path(runs))
    now = refreshed(where, job_id)
    messages = [event["message"] for event in where.events(job_id) if event.get("message")]
    return _told(now, where, messages=tuple(messages[-_MOST_TOLD:]))


def jobs_wait(
    job: str | None = None,
    *,
    runs: RunsFolder = "runs",
    timeout: Annotated[float | None, Option(metavar="SECONDS")] = None,
) -> TuneJob:
    """Wait until JOB has ended. Exit 1 when it ended without a model.

    Ctrl-C stops the waiting, not the job.

    Args:
        job: Name of the job. Default: the last job that was started here.
        runs: Folder where jobs are kept.
        timeout: Stop waiting after this many seconds.

    Raises:
        RequestError: There is no such job, or it has not ended in time.
        ServiceError: The service of the job does not answer.
    """
    where, job_id = _find(job, Path(runs))
    return ended(Follower(where, job_id).wait(timeout), where)


def jobs_cancel(job: str | None = None, *, runs: RunsFolder = "runs") -> TuneJob:
    """End JOB. A local job can be resumed from its last checkpoint, one at a service cannot.

    Args:
        job: Name of the job. Default: the last job that was started here.
        runs: Folder where jobs are kept.

    Raises:
        RequestError: There is no such job, or it has ended already.
        ServiceError: The service refused.
    """
    from trajkit.training.jobs import cancel

    where, job_id = _find(job, Path(runs))
    return _told(cancel(where, job_id), where)


def jobs_pause(job: str | None = None, *, runs: RunsFolder = "runs") -> TuneJob:
    """Pause JOB, if its service can do that; `resume` continues it.

    Args:
        job: Name of the job. Default: the last job that was started here.
        runs: Folder where jobs are kept.

    Raises:
        RequestError: The job runs on this machine, or its service cannot pause it.
        ServiceError: The service refused.
    """
    from trajkit.training.jobs import pause

    where, job_id = _find(job, Path(runs))
    return _told(pause(where, job_id), where)


def jobs_resume(
    job: str | None = None, *, runs: RunsFolder = "runs", again: bool = False, detach: bool = False
) -> TuneJob:
    """Resume JOB: from its last checkpoint here, or where it was paused or cut off at a service.

    Args:
        job: Name of the job. Default: the last job that was started here.
        runs: Folder where jobs are kept.
        again: Create the job again even if its service may have it: you may pay twice.
        detach: Do not wait for the end.

    Raises:
        RequestError: There is no such job, it ended at a service, or its service may have it without
            listing it.
        ServiceError: The service refused.
    """
    from trajkit.training.hosted.answer import Uncertain
    from trajkit.training.jobs import resume

    where, job_id = _find(job, Path(runs))
    try:
        resumed = resume(where, job_id, again=again, on_message=talk)
    except Uncertain as error:
        if not can_ask():
            raise
        talk(error.message)
        confirm("Create it again?", yes=False, verb="creates it again", refused="nothing was created")
        resumed = resume(where, job_id, again=True, on_message=talk)
    return ended(resumed if detach else Follower(where, job_id).wait(), where)


def _find(job: str | None, runs_folder: Path) -> tuple[Runs, str]:
    """The named job, or the last one started here, and where it is; checked to exist.

    Raises:
        RequestError: There is none.
    """
    from trajkit.training.runs import Runs

    runs = Runs(runs_folder)
    if job is None:
        last = last_job()
        if last is None:
            raise RequestError("no job was started here", hint="`trajkit jobs list` names those in a folder")
        runs, job = Runs(last[0]), last[1]
    runs.load(job)
    return runs, job


def ended(job: TuneJob, runs: Runs) -> TuneJob:
    """A job as the command that waited for it returns it: with exit code 1 when there is no model."""
    return _told(job, runs, exit_code=1 if job.status in ("failed", "cancelled") else 0)


def _told(job: TuneJob, runs: Runs, **shown: Any) -> TuneJob:
    """A job as a command returns it; prints why it failed."""
    from trajkit.training.job import Shown

    if job.error is not None:
        talk(f"{job.job_id}: {job.error}")
    return job.shown(Shown(runs.folder, **shown))


class Follower:
    """Waits for a job, with its losses in a progress line.

    Args:
        runs: Where the job is kept.
        job_id: Its name.
        n_steps: Steps of the optimizer; None if that is not known yet.
    """

    def __init__(self, runs: Runs, job_id: str, n_steps: int | None = None) -> None:
        self._runs, self._job_id, self._n_steps = runs, job_id, n_steps
        self._words = "starting"
        self._meter = Meter()

    def wait(self, timeout_s: float | None = None) -> TuneJob:
        """The job when it has ended.

        Raises:
            RequestError: It has not ended in time.
        """
        from trajkit.training.jobs import follow

        try:
            with self._meter:
                self._meter.show(self._words, 0, self._n_steps)
                return follow(
                    self._runs,
                    self._job_id,
                    on_step=self._show,
                    on_message=lambda message: self._meter.say(f"{self._job_id}: {message}"),
                    timeout_s=timeout_s,
                )
        except TimeoutError as error:
            raise RequestError(str(error), hint=self._again) from error
        except KeyboardInterrupt:
            talk(f"job {self._job_id} continues: `{self._again}` waits for it again")
            raise

    @property
    def _again(self) -> str:
        """The command that waits for the same job."""
        elsewhere = "" if self._runs.folder == Path("runs") else f" --runs {self._runs.folder}"
        return f"trajkit jobs wait {self._job_id}{elsewhere}"

    def _show(self, step: Step) -> None:
        if step.loss is not None:
            self._words = f"loss {step.loss:.3f}"
        if step.eval_loss is not None:
            self._words = f"validation {step.eval_loss:.3f}"
        self._words = step.words or self._words
        self._n_steps = step.n_total or self._n_steps
        self._meter.show(self._words, step.n_done, self._n_steps)
