"""Write the losses of a job as a self-contained page: a chart, and a table of the validations."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from trajkit._core.files import write_text
from trajkit.curation.statistics.chart import Curve, Place, curves
from trajkit.curation.statistics.html_page import document, html_table
from trajkit.training.job import TuneJob
from trajkit.training.runs import Runs

LOSS_PAGE = "loss.html"

_MEANING = {
    "sft": "Loss per learned token in nats, weighted by the rows' weights.",
    "dpo": "Loss of a pair, mean over a batch.",
    "kto": "Loss of a completion, mean over a batch.",
}
_MARGIN = "Reward of better minus worse completions, relative to the base model: 0 before the training."


def write_loss_page(runs: Runs, job: TuneJob) -> Path | None:
    """Write the page into the job's folder; return None while there is no loss to show.

    Args:
        runs: Folder of the jobs.
        job: The job, with its result where it has one.
    """
    steps = _once([event for event in runs.events(job.job_id) if event["kind"] == "step"])
    learned = [Place(step["n_done"], step["loss"]) for step in steps if step.get("loss") is not None]
    measured = [
        Place(step["n_done"], step["eval_loss"]) for step in steps if step.get("eval_loss") is not None
    ]
    if not learned:
        return None
    path = runs.path(job.job_id) / LOSS_PAGE
    rewards = [event for event in runs.events(job.job_id) if event["kind"] == "rewards"]
    write_text(path, _page(job, learned, measured, _margins(job, rewards)))
    return path


def _once(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the last record of each step, because a step is repeated after a resume."""
    found = {(step["n_done"], step.get("eval_loss") is None): step for step in steps}
    return [found[key] for key in sorted(found)]


def _margins(job: TuneJob, rewards: Sequence[dict[str, Any]]) -> str:
    """Show the reward margins of a preference training; empty for other methods."""
    by_side: dict[bool, dict[int, float]] = {False: {}, True: {}}
    for event in rewards:  # of a repeated step, the last record counts
        if event["margin"] is not None:
            by_side[event["is_validation"]][event["n_done"]] = event["margin"]
    lines = [
        Curve(name, [Place(step, found[step]) for step in sorted(found)], style)
        for name, style, found in (
            ("training", "first", by_side[False]),
            ("validation", "second", by_side[True]),
        )
        if found
    ]
    if not lines:
        return ""
    chart = curves(lines, title=f"Margins of {job.job_id}")
    return f"<h2>Margins</h2><p>{_MARGIN}</p>{chart}"


def _page(job: TuneJob, learned: Sequence[Place], measured: Sequence[Place], margins: str) -> str:
    lines = [Curve("training", learned, "first")]
    if measured:
        lines.append(Curve("validation", measured, "second"))
    best = next((place for place in measured if place.step == job.result.get("best_step")), None)
    said = "" if best is None else f"kept: step {best.step:,.0f}, validation loss {best.value:.4g}"
    chart = curves(lines, title=f"Losses of {job.job_id}", marked=best, said=said)
    facts = f"{job.method}, {job.base}. {_MEANING[job.method]}"
    body = f"<h1>{escape(job.job_id)}</h1><p>{escape(facts)} {escape(said.capitalize())}</p>{chart}{margins}"
    if measured:
        rows = [(f"{place.step:,.0f}", f"{place.value:.4f}") for place in measured]
        body += f"<h2>Validations</h2>{html_table(('step', 'loss'), rows)}"
    return document(f"{job.job_id}: losses", body)
