"""Carry out a prepared job: show the plan, ask, start, wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from trajkit._core.output.console import confirm, count, plural, talk
from trajkit._core.settings import remember
from trajkit.commands.jobs import Follower, ended
from trajkit.commands.place import near
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.commands.options.training import JobOptions
    from trajkit.curation.leaks.report import LeakReport
    from trajkit.training.job import JobData, TuneJob
    from trajkit.training.runs import Runs

_NEGATIVE = "negative weight"
"""Why `trajkit.convert` leaves out an answer that was worse than others."""


class Prepared(Protocol):
    """A job that can be started, wherever it runs."""

    @property
    def job(self) -> TuneJob:
        """The job, saved."""

    @property
    def is_new(self) -> bool:
        """False if the same job existed already: then it is that one."""


def carry_out(
    prepared: Prepared,
    runs: Runs,
    options: JobOptions,
    *,
    plan: Iterable[str],
    question: str | None,
    nothing: str,
    start: Callable[[Runs, str], TuneJob],
    n_steps: int | None = None,
) -> TuneJob:
    """Show the plan, ask, start the job, wait for it, and return it.

    A job that is not agreed to is removed; one that runs or has succeeded needs no confirmation.

    Args:
        prepared: The job.
        runs: Where it is kept.
        options: Whether to start it, to ask, and to wait.
        plan: Lines that describe what will be done.
        question: Asked before the start; None to ask nothing.
        nothing: Note of a dry run and of a refusal, such as "nothing was trained".
        start: Starts the job; one that runs or has succeeded is left alone.
        n_steps: Optimizer steps, for the progress line; None if not known yet.

    Raises:
        RequestError: The question cannot be asked here.
    """
    from trajkit.training.job import Shown

    for line in plan:
        talk(line)
    job = prepared.job
    if options["dry_run"]:
        forget(prepared, runs)
        talk(f"dry run: {nothing}")
        return job.shown(Shown(folder=None))
    if question is not None and not is_under_way(job):
        try:
            confirm(question, yes=options["yes"], verb="trains", refused=nothing)
        except (click.exceptions.Exit, click.Abort, RequestError):
            forget(prepared, runs)
            raise
    remember("last_job", {"runs": str(runs.folder.absolute()), "job_id": job.job_id})
    job = start(runs, job.job_id)
    if not options["detach"]:
        job = Follower(runs, job.job_id, n_steps).wait()
    if job.is_here:
        for line in _left_lines(runs.path(job.job_id)):
            talk(line)
    return ended(job, runs)


def _left_lines(folder: Path) -> Iterator[str]:
    """Files of a local job beside its record: models, and the chart of the losses."""
    from trajkit.training.local.outcome.finish import MERGED, MODEL
    from trajkit.training.local.outcome.page import LOSS_PAGE, RL_PAGE

    names = {"model": MODEL, "merged": MERGED, "losses": LOSS_PAGE, "curves": RL_PAGE}
    yield from (f"{name:9} {folder / file}" for name, file in names.items() if (folder / file).exists())


def is_under_way(job: TuneJob) -> bool:
    """Whether no confirmation is needed; a local job whose process is gone would start again."""
    is_gone = job.process is not None and not job.process.is_running
    return job.status == "succeeded" or (job.status == "running" and not is_gone)


def forget(prepared: Prepared, runs: Runs) -> None:
    """Remove a job that was not agreed to; one that existed before is kept."""
    if prepared.is_new:
        runs.remove(prepared.job.job_id)


def data_lines(job: TuneJob, leak: LeakReport, *, row: str, learned: str) -> Iterator[str]:
    """The lines of a plan on training data, validation data, and what both share.

    Args:
        job: The job.
        leak: What the two have in common.
        row: What a row is called: "pair", "answer", or "row" for one of several steps.
        learned: What the learned tokens are called, such as "answers".
    """
    for name, data in (("learned", job.learned), ("measured", job.validation)):
        if data is not None:
            yield (
                f"{name:9} {near(data.store)}  {plural(data.n_episodes, 'episode')}"
                f"  {plural(data.n_rows, row)}  {count(data.n_tokens)} tokens,"
                f" {count(data.n_learned_tokens)} of them {learned}; longest {count(data.longest)}"
            )
            if row != "row":
                yield from _not_learned(data, row)
    if row == "row":
        yield from _not_learned(job.learned, "step")
    for kind, number in job.learned.losses.items():
        yield f"          left out: {plural(number, kind)}"
    if job.validation is None:
        yield "measured  nothing: the last checkpoint is kept, not the best"
    leaks = "; ".join(finding.words for finding in leak.blocking) if leak.leaks else "none"
    yield f"leaks     {leaks}{' (allowed)' if leak.leaks else ''}"


def _not_learned(data: JobData, noun: str) -> Iterator[str]:
    for reason, number in data.left.items():
        yield f"          not learned: {plural(number, noun)}: {reason}"
        if reason == _NEGATIVE:
            yield "          so only answers better than their group are learned, and none are unlearned"
