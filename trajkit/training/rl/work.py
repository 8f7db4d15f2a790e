"""Run a reinforcement learning job in its worker: record events, the page of curves, and stores."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trajkit
from trajkit.rollouts.records.record import Played, to_episode
from trajkit.schema import Left, LineageEntry
from trajkit.schema.base import JsonObject
from trajkit.store.writer import write_episodes
from trajkit.training.job import TuneJob
from trajkit.training.local.outcome.finish import MODEL, TOKENIZER
from trajkit.training.local.outcome.page import write_rl_page
from trajkit.training.rl.play import check_sources
from trajkit.training.rl.prepare import HELD_OUT
from trajkit.training.rl.recipe import PlayedRecipe, RlRecipe, TinkerRecipe
from trajkit.training.rl.tinker import Progress, TinkerTrained, train_at_service
from trajkit.training.rl.train import RlTrained, train_rl
from trajkit.training.runs import Runs

ROLLOUTS = "rollouts"
"""Folder of the stores with played episodes, in the folder of a job."""


def train_by_playing(
    runs: Runs, job: TuneJob, recipe: RlRecipe, tell: Callable[[JsonObject], None], *, workspace: Path
) -> RlTrained:
    """Train a prepared job in this process, and save the weights in its folder.

    Args:
        runs: Folder of the jobs; an absolute path.
        job: The job.
        recipe: Settings of the training.
        tell: Called with each event.
        workspace: Folder for checkpoints.
    """
    with _around(runs, job, recipe, tell) as around:
        return train_rl(
            job.base,
            runs.path(job.job_id) / MODEL,
            recipe,
            workspace=workspace,
            store=None if job.train is None else job.train.store,
            **around,
        )


def play_at_service(
    runs: Runs, job: TuneJob, recipe: TinkerRecipe, tell: Callable[[JsonObject], None]
) -> TinkerTrained:
    """Run a prepared job whose model is at a service, in this process.

    Args:
        runs: Folder of the jobs; an absolute path.
        job: The job. Its `remote` has the progress to resume from.
        recipe: Settings of the training.
        tell: Called with each event.
    """

    def save(progress: Progress) -> None:
        remote = progress.model_dump(mode="json")
        runs.save(runs.load(job.job_id).model_copy(update={"remote": remote}))

    with _around(runs, job, recipe, tell) as around:
        return train_at_service(job.base, recipe, Progress.model_validate(job.remote), save=save, **around)


@contextlib.contextmanager
def _around(
    runs: Runs, job: TuneJob, recipe: PlayedRecipe, tell: Callable[[JsonObject], None]
) -> Iterator[dict[str, Any]]:
    """Yield the arguments that both trainings share; the block runs in the environment's folder."""
    folder = runs.path(job.job_id)

    def heard(event: JsonObject) -> None:
        tell(event)
        if event["kind"] in ("iteration", "evaluation"):
            tell({"kind": "step", **_step(event, recipe)})
            write_rl_page(runs, job)

    def keep(iteration: int, played: Sequence[Played]) -> None:
        _write_store(folder / ROLLOUTS / f"{iteration + 1:04}", job, iteration, played)

    with contextlib.chdir(recipe.play.folder or Path.cwd()):  # for the user's own environment
        check_sources(recipe.play)
        yield {
            "tokenizer": str(folder / TOKENIZER),
            "held_out": frozenset(json.loads((folder / HELD_OUT).read_text(encoding="utf-8"))),
            "tell": heard,
            "keep": keep if recipe.keep_rollouts else None,
        }


def _step(event: JsonObject, recipe: PlayedRecipe) -> JsonObject:
    """Return the event's progress in the form that every job reports."""
    words = f"success {event['success']:.2f}  return {event['episode_return']:.3f}"
    if event["kind"] == "evaluation":
        words = f"held-out {words}"
    else:
        drift = f"  KL {event['kl']:.3f}" if "kl" in event else ""
        words += f"{drift}  {event['steps_per_s']:,.0f} steps/s"
    return {
        "n_done": event["iteration"],
        "n_total": recipe.iterations,
        "epoch": None,
        "loss": event.get("loss"),
        "eval_loss": None,
        "learning_rate": event.get("learning_rate"),
        "words": words,
    }


def _write_store(goal: Path, job: TuneJob, iteration: int, played: Sequence[Played]) -> None:
    """Write the episodes of an iteration; a partial store of a killed process is replaced."""
    shutil.rmtree(goal, ignore_errors=True)
    whole = [one for one in played if one.fault is None]
    faults = len(played) - len(whole)
    n_steps = sum(len(one.answers()) for one in whole)
    entry = LineageEntry(
        verb=f"rl {job.target}",
        arguments={"job": job.job_id, "key": job.key, "base": job.base, "iteration": iteration + 1},
        n_episodes_in=len(played),
        n_episodes_out=len(whole),
        n_steps_in=n_steps,
        n_steps_out=n_steps,
        left=(Left(reason="ended by a fault", n_episodes=faults),) if faults else (),
        done_at=datetime.now(UTC),
        trajkit_version=trajkit.__version__,
    )
    write_episodes(
        goal,
        map(to_episode, whole),
        kind="rollout",
        source={"job": job.job_id, "run": f"{job.job_id}-{iteration + 1}"},
        lineage=[entry],
    )
