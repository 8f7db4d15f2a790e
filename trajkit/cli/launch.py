"""What every command that trains does with a prepared job: plan, question, start, waiting, outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from trajkit._core import console
from trajkit._core.settings import remember
from trajkit.cli import training
from trajkit.commands.jobs import Follower, ended
from trajkit.commands.started import forget, is_under_way
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.commands.started import Prepared
    from trajkit.training.job import TuneJob
    from trajkit.training.runs import Runs


def carry_out(
    prepared: Prepared,
    runs: Runs,
    asked: Mapping[str, Any],
    *,
    plan: Iterable[str],
    start: Callable[[Runs, str], TuneJob],
    n_steps: int | None = None,
    question: str = "Train?",
    nothing: str = "nothing was trained",
) -> int:
    """Show the plan, ask, start, wait, and say what came of it.

    A job that nobody wanted in the end is forgotten; one that runs or has succeeded is not asked about again.

    Args:
        prepared: The job.
        runs: Where it is kept.
        asked: What `training.job_options` read.
        plan: Its lines.
        start: Starts the job; one that runs or has succeeded is left alone.
        n_steps: Steps that it takes, for the progress line; None where that is not known yet.
        question: What is asked.
        nothing: What is said of a dry run.

    Returns:
        The exit code.
    """
    for line in plan:
        console.talk(line)
    job_id = prepared.job.job_id
    if asked["dry_run"]:
        forget(prepared, runs)
        console.talk(f"dry run: {nothing}")
        return 0
    if not is_under_way(prepared.job):
        _agree(prepared, runs, question, yes=asked["yes"])
    remember("last_job", {"runs": str(runs.folder.absolute()), "job_id": job_id})
    job = start(runs, job_id)
    if not asked["detach"]:
        job = Follower(runs, job_id, n_steps).wait()
    if job.target == "local":
        for line in left_lines(runs, job):
            console.talk(line)
    shown = ended(job, runs)
    if asked["as_json"]:
        console.result_json(shown.to_json())
    else:
        console.result_text(str(shown))
    return shown.exit_code


def left_lines(runs: Runs, job: TuneJob) -> Iterator[str]:
    """The lines that say what a training here left beside its record: models, and the chart of the losses."""
    from trajkit.training.local.finish import MERGED, MODEL
    from trajkit.training.local.loss_page import LOSS_PAGE

    folder = runs.path(job.job_id)
    names = {"model": MODEL, "merged": MERGED, "losses": LOSS_PAGE}
    yield from (f"{name:9} {folder / file}" for name, file in names.items() if (folder / file).exists())


def _agree(prepared: Prepared, runs: Runs, question: str, *, yes: bool) -> None:
    """Nothing is started, sent or paid for before somebody said yes."""
    try:
        training.confirm(question, yes=yes)
    except (click.exceptions.Exit, click.Abort, RequestError):
        forget(prepared, runs)
        raise
