"""`trajkit jobs`: what was started, how far it is, and what came of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from trajkit._core import console
from trajkit.commands.jobs import find_job
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.training.job import TuneJob
    from trajkit.training.runs import Runs
    from trajkit.training.step import Step

runs_option = click.option(
    "--runs",
    "runs_folder",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="The folder where jobs are kept.",
)
_MOST_TOLD = 5
_job = click.argument("job", required=False)


@click.group()
def jobs() -> None:
    """List, watch, end and resume fine-tuning jobs, from any terminal."""


@jobs.command("list")
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_jobs(runs_folder: Path, as_json: bool) -> None:
    """List every job, the newest first.

    A service that cannot be asked is no error: its job is listed as it was last seen.
    """
    from trajkit.training.runs import Runs

    runs = Runs(runs_folder)
    found = [_as_it_is(runs, job) for job in runs.all()]
    if as_json:
        console.result_json([job.model_dump(mode="json") for job in found])
        return
    rows = [
        (job.job_id, job.status, job.target, job.base, f"{job.created_at:%Y-%m-%d %H:%M}", _outcome(job))
        for job in found
    ]
    headings = ("job", "status", "target", "model", "since (UTC)", "outcome")
    console.table([console.Cell(heading) for heading in headings], rows)


@jobs.command()
@_job
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show(job: str | None, runs_folder: Path, as_json: bool) -> None:
    """Show JOB; without one, the last that was started here."""
    from trajkit.training.jobs import refreshed

    runs, job_id = find_job(job, runs_folder)
    print_job(runs, refreshed(runs, job_id), as_json=as_json, is_long=True)


@jobs.command()
@_job
@runs_option
@click.option("--timeout", "timeout_s", type=float, metavar="SECONDS", help="Give up waiting after so long.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def wait(job: str | None, runs_folder: Path, timeout_s: float | None, as_json: bool) -> int:
    """Wait until JOB has ended. Exit 1 when it ended without a model."""
    runs, job_id = find_job(job, runs_folder)
    ended = Follower(runs, job_id, None).wait(timeout_s)
    print_job(runs, ended, as_json=as_json)
    return 0 if ended.status == "succeeded" else 1


@jobs.command()
@_job
@runs_option
def cancel(job: str | None, runs_folder: Path) -> None:
    """End JOB. One on this machine can be resumed from its last checkpoint; at a service it is over."""
    from trajkit.training.jobs import cancel as end

    runs, job_id = find_job(job, runs_folder)
    print_job(runs, end(runs, job_id), as_json=False)


@jobs.command()
@_job
@runs_option
def pause(job: str | None, runs_folder: Path) -> None:
    """Halt JOB at a service that can do that; `resume` goes on with it."""
    from trajkit.training.jobs import pause as halt

    runs, job_id = find_job(job, runs_folder)
    print_job(runs, halt(runs, job_id), as_json=False)


@jobs.command()
@_job
@runs_option
@click.option(
    "--again",
    is_flag=True,
    help="Create a job anew whose service may have it already: it may be paid for twice.",
)
@click.option("--detach", is_flag=True, help="Do not wait.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def resume(job: str | None, runs_folder: Path, again: bool, detach: bool, as_json: bool) -> int:
    """Go on with JOB: here from its last checkpoint, at a service with what was halted or cut off."""
    from trajkit.training.hosted.failure import Uncertain
    from trajkit.training.jobs import resume as go_on

    runs, job_id = find_job(job, runs_folder)
    try:
        found = go_on(runs, job_id, again=again, on_message=console.talk)
    except Uncertain as error:
        if not (sys.stdin.isatty() and console.is_terminal()):
            raise
        console.talk(error.message)
        if not click.confirm("Create it again?", err=True):
            raise click.exceptions.Exit(1) from error
        found = go_on(runs, job_id, again=True, on_message=console.talk)
    if not detach:
        found = Follower(runs, job_id, None).wait()
    print_job(runs, found, as_json=as_json)
    return 1 if found.status in ("failed", "cancelled") else 0


class Follower:
    """Waits for a job, with its losses in a progress line.

    Args:
        runs: Where it is kept.
        job_id: Which.
        n_steps: How many steps it has; None where that is not known yet.
    """

    def __init__(self, runs: Runs, job_id: str, n_steps: int | None) -> None:
        self._runs, self._job_id, self._n_steps = runs, job_id, n_steps
        self._words = "starting"
        self._meter = console.Meter()

    def __enter__(self) -> Self:
        self._meter.__enter__()
        self._meter.show(self._words, 0, self._n_steps)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._meter.__exit__(kind, error, trace)

    def wait(self, timeout_s: float | None = None) -> TuneJob:
        """The job when it has ended.

        Raises:
            RequestError: It has not ended in time.
        """
        from trajkit.training.jobs import follow

        try:
            with self:
                return follow(
                    self._runs,
                    self._job_id,
                    on_step=self._show,
                    on_message=self._say,
                    timeout_s=timeout_s,
                )
        except TimeoutError as error:
            raise RequestError(str(error), hint=self._again) from error
        except KeyboardInterrupt:
            console.talk(f"job {self._job_id} goes on: `{self._again}` waits for it again")
            raise

    @property
    def _again(self) -> str:
        """What waits for the same job."""
        elsewhere = "" if self._runs.folder == Path("runs") else f" --runs {self._runs.folder}"
        return f"trajkit jobs wait {self._job_id}{elsewhere}"

    def _show(self, step: Step) -> None:
        if step.loss is not None:
            self._words = f"loss {step.loss:.3f}"
        if step.eval_loss is not None:
            self._words = f"validation {step.eval_loss:.3f}"
        self._n_steps = step.n_total or self._n_steps
        self._meter.show(self._words, step.n_done, self._n_steps)

    def _say(self, message: str) -> None:
        self._meter.say(f"{self._job_id}: {message}")


def print_job(runs: Runs, job: TuneJob, *, as_json: bool, is_long: bool = False) -> None:
    """What became of a job; the last line says what now exists."""
    if as_json:
        console.result_json(job.model_dump(mode="json"))
        return
    if is_long:
        told = [event["message"] for event in runs.events(job.job_id) if event.get("message")]
        facts = [*_facts(job), *(("told", message) for message in told[-_MOST_TOLD:])]
        console.table([console.Cell("job"), console.Cell(job.job_id)], facts)
    if job.error is not None:
        console.talk(f"{job.job_id}: {job.error}")
    outcome = _outcome(job)
    line = f"{runs.path(job.job_id)}  {job.status}"
    console.result(f"{line}  {outcome}" if outcome else line)


def _as_it_is(runs: Runs, job: TuneJob) -> TuneJob:
    from trajkit.errors import MissingExtra, ServiceError
    from trajkit.training.jobs import refreshed

    try:
        return refreshed(runs, job.job_id)
    except (ServiceError, RequestError, MissingExtra) as error:
        console.talk(f"{job.job_id}: as it was last seen: {error.message}")
        return job


def _outcome(job: TuneJob) -> str:
    """What came out: the model where a service keeps it, steps and losses where they are known."""
    result: dict[str, Any] = job.result
    parts = [result["model"]] if result.get("model") else []
    if result.get("n_steps") is not None:
        parts.append(console.plural(result["n_steps"], "step"))
    if result.get("train_loss") is not None:
        parts.append(f"loss {result['train_loss']:.3f}")
    if result.get("eval_loss") is not None:
        best = f" at step {result['best_step']}" if result.get("best_step") is not None else ""
        parts.append(f"validation {result['eval_loss']:.3f}{best}")
    if result.get("margin") is not None:
        parts.append(f"margin {result['margin']:.3f}")
    if result.get("cost_usd") is not None:
        parts.append(f"{result['cost_usd']:,.2f} USD")
    return "  ".join(parts)


def _flat(recipe: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """What a recipe says, group by group; what it leaves open is not there."""
    for name, value in recipe.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", str(value)


def _facts(job: TuneJob) -> list[tuple[str, str]]:
    facts = [
        ("status", str(job.status)),
        ("target", job.target),
        ("model", job.base),
        (
            "learned",
            f"{job.train.store} ({job.train.digest[:12]}), {console.plural(job.train.n_rows, 'row')}",
        ),
    ]
    if job.validation is not None:
        facts.append(("measured", f"{job.validation.store} ({job.validation.digest[:12]})"))
    facts += _flat(job.recipe)
    facts += job.versions.items()
    if job.code_commit is not None:
        facts.append(("commit", job.code_commit))
    facts.append(("since", f"{job.created_at:%Y-%m-%d %H:%M} UTC"))
    if job.result.get("n_trained_tokens") is not None:
        facts.append(("trained tokens", f"{job.result['n_trained_tokens']:,}"))
    if job.target != "local":
        from trajkit.training.hosted.remote import Remote

        facts += Remote.of(job).lines()
    return facts
