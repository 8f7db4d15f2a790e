"""Write the reports of a training as a self-contained page: curves, and a table of the measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

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
        job: The job, with its result if it has one.
    """
    told = [event for event in runs.events(job.job_id) if event["kind"] == "step"]
    found = {(step["n_done"], step.get("eval_loss") is None): step for step in told}
    steps = [found[key] for key in sorted(found)]  # of a step that a resume repeated, the last record
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


RL_PAGE = "rl.html"


class _Chart(NamedTuple):
    """One chart of the page."""

    title: str
    field: str
    meaning: str
    """Its meaning, for the reader."""


_CHARTS = (
    _Chart("Success", "success", "Share of episodes that succeeded: training worlds, and held-out seeds."),
    _Chart("Return", "episode_return", "Mean sum of rewards of an episode."),
    _Chart(
        "KL divergence",
        "kl",
        "How far a token's probabilities have moved from the initial model, in nats. It should rise slowly;"
        " if it grows fast while the return falls, the learning rate is too high.",
    ),
    _Chart(
        "Entropy",
        "entropy",
        "How uncertain the model is about a token, in nats. Near 0, it always plays the same and stops"
        " learning.",
    ),
    _Chart(
        "Clip share",
        "clip_share",
        "Share of tokens whose probability has moved beyond the clip range within an iteration.",
    ),
    _Chart("Invalid answers", "invalid", "Share of steps whose answer named no action."),
    _Chart("Speed", "steps_per_s", "Steps of episodes per second of playing and learning."),
)


def write_rl_page(runs: Runs, job: TuneJob) -> Path | None:
    """Write the page into the job's folder; None while nothing has happened.

    Args:
        runs: Folder of the jobs.
        job: The job, with its result if it has one.
    """
    events = runs.events(job.job_id)
    played = _by_iteration(events, "iteration")
    measured = _by_iteration(events, "evaluation")
    if not played and not measured:
        return None
    path = runs.path(job.job_id) / RL_PAGE
    write_text(path, _rl_page(job, played, measured))
    return path


def _by_iteration(events: Sequence[dict[str, Any]], kind: str) -> dict[int, dict[str, Any]]:
    """Return the events of each iteration; of one that was played again after a resume, the latest."""
    found = {event["iteration"]: event for event in events if event["kind"] == kind}
    return {number: found[number] for number in sorted(found)}


def _rl_page(
    job: TuneJob, played: Mapping[int, Mapping[str, Any]], measured: Mapping[int, Mapping[str, Any]]
) -> str:
    recipe: Any = job.recipe
    world = recipe["play"]
    kept = job.result.get("best_iteration")
    learned = f"{world['env']} {', '.join(world['tasks'])}" if job.train is None else str(job.train.store)
    facts = f"{recipe['algorithm']} from {job.base} on {learned}."
    if kept is not None:
        facts += f" Kept: the model after iteration {kept}."
    if job.result.get("stopped"):
        facts += f" Stopped: {job.result['stopped']}."
    body = [f"<h1>{escape(job.job_id)}</h1><p>{escape(facts)}</p>"]
    for chart in _CHARTS:
        lines = [
            Curve(name, [Place(number, float(event[chart.field])) for number, event in found.items()], style)
            for name, style, found in (("training", "first", played), ("held out", "second", measured))
            if any(chart.field in event for event in found.values())
        ]
        if lines:
            drawn = curves(lines, title=f"{chart.title} of {job.job_id}", across="iterations")
            body.append(f"<h2>{chart.title}</h2><p>{escape(chart.meaning)}</p>{drawn}")
    if measured:
        rows = [
            (
                str(number),
                f"{event['success']:.3f}",
                f"{event['episode_return']:.3f} ± {event['return_error']:.3f}",
                f"{event['n_episodes']:,}",
            )
            for number, event in measured.items()
        ]
        table = html_table(("after iteration", "success", "return", "episodes"), rows)
        body.append(f"<h2>Held-out seeds</h2><p>The return with its standard error.</p>{table}")
    return document(f"{job.job_id}: curves", "".join(body))
