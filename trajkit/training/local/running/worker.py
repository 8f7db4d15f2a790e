"""Run a training in its own process, which continues when the terminal is closed.

python -m trajkit.training.local.running.worker RUNS JOB

One of several processes of a training, which torch's launcher starts, has `replica` as a third argument.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from trajkit._core.files import write_text
from trajkit._core.lazy import need
from trajkit._core.lock import locked
from trajkit.errors import RequestError, TrajkitError
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.schema import Model
from trajkit.schema.base import JsonObject
from trajkit.training.job import TINKER, JobStatus, TuneJob
from trajkit.training.local.outcome.finish import MODEL, TOKENIZER, finish
from trajkit.training.local.play import Player, open_stage
from trajkit.training.local.preferences.recipe import RECIPES
from trajkit.training.local.preferences.train import train_preference
from trajkit.training.local.prepare import TRAIN_TOKENS, VALIDATION_TOKENS
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.running.attempt import is_out_of_disk, out_of_disk
from trajkit.training.local.running.replicas import FAILURE, RESULT, n_replicas, run_replicas
from trajkit.training.local.train import Trained, train
from trajkit.training.rl.recipe import RlRecipe, TinkerRecipe
from trajkit.training.rl.tinker import TinkerTrained
from trajkit.training.rl.work import play_at_service, train_by_playing
from trajkit.training.runs import Runs

Recipe = TypeVar("Recipe", bound=Model)

LOCK, CHECKPOINTS = "worker.lock", "checkpoints"


_KINDS: dict[str, type[LocalRecipe]] = {"sft": LocalRecipe, "rl": RlRecipe, **RECIPES}


class Cancelled(BaseException):
    """The process got SIGTERM."""


def main(arguments: list[str]) -> int:
    """Train the job, and record events and the result."""
    runs, job_id = Runs(Path(arguments[0])), arguments[1]
    if arguments[2:]:
        return replica(runs, job_id)
    signal.signal(signal.SIGTERM, _cancel)
    with locked(runs.path(job_id) / LOCK) as holder:
        if holder is not None:
            print(f"{holder} already trains this job", file=sys.stderr)  # noqa: T201 -- into the log
            return 1
        return work(runs, job_id)


def work(runs: Runs, job_id: str) -> int:
    """Train a job in this process; return 0 on success."""
    job = runs.load(job_id)
    try:
        trained = run(runs, job, lambda event: runs.add_event(job_id, event))
    except Cancelled:
        return _ended(runs, job, JobStatus.CANCELLED, error="it was cancelled")
    except TrajkitError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return _ended(runs, job, JobStatus.FAILED, error=f"{error.message}{hint}")
    except (RuntimeError, ValueError, OSError, MemoryError) as error:
        words = (str(error).splitlines() or [type(error).__name__])[0]
        if is_out_of_disk(error):
            words = str(out_of_disk(runs.path(job_id), error))
        return _ended(runs, job, JobStatus.FAILED, error=words)
    return _ended(runs, job, JobStatus.SUCCEEDED, result=trained.model_dump(mode="json"))


def run(runs: Runs, job: TuneJob, tell: Callable[[JsonObject], None]) -> Trained | TinkerTrained:
    """Train a prepared job, from its last checkpoint if it has one, and complete its folder.

    Args:
        runs: Folder of the jobs.
        job: The job.
        tell: Called with events.
    """
    if job.target == TINKER:
        return play_at_service(runs, job, _recipe(job, TinkerRecipe), tell)
    recipe = _recipe(job, _KINDS[job.method])
    n = n_replicas(recipe)
    if n > 1 and job.method != "sft":
        raise RequestError(
            f"{job.method} trains in one process, and there are {n} GPUs", hint="CUDA_VISIBLE_DEVICES=0"
        )
    if n > 1:
        workspace = runs.path(job.job_id) / CHECKPOINTS
        trained = run_replicas(runs.folder, job.job_id, recipe, workspace, _messages(tell))
    else:
        trained = train_here(runs, job, tell)
    finish(runs, job, trained)
    return trained


def train_here(runs: Runs, job: TuneJob, tell: Callable[[JsonObject], None]) -> Trained:
    """Train in this process, and save the weights in the job's folder.

    Args:
        runs: Folder of the jobs.
        job: The job.
        tell: Called with events.
    """
    folder = runs.path(job.job_id)
    if job.method == "rl":
        return train_by_playing(runs, job, _recipe(job, RlRecipe), tell, workspace=folder / CHECKPOINTS)
    options: dict[str, Any] = {
        "validation": folder / VALIDATION_TOKENS if job.validation is not None else None,
        "workspace": folder / CHECKPOINTS,
        "on_step": lambda step: tell({"kind": "step", **step._asdict()}),
        "on_message": _messages(tell),
    }
    if job.method == "sft":
        recipe = _recipe(job, LocalRecipe)
        player = None
        if recipe.play is not None:
            template = ChatTemplate(str(folder / TOKENIZER))
            player = Player(open_stage(recipe.play), template, seed=recipe.seed)
        return train(job.base, folder / TRAIN_TOKENS, folder / MODEL, recipe, player=player, **options)
    return train_preference(
        job.base,
        folder / TRAIN_TOKENS,
        folder / MODEL,
        _recipe(job, RECIPES[job.method]),
        method=job.method,
        tokenizer=str(folder / TOKENIZER),
        on_rewards=lambda rewards: tell({"kind": "rewards", **rewards._asdict()}),
        **options,
    )


def replica(runs: Runs, job_id: str) -> int:
    """Train as one of several processes; the first one records events and the result."""
    folder, is_first = runs.path(job_id), os.environ["RANK"] == "0"

    def tell(event: JsonObject) -> None:
        if is_first:
            runs.add_event(job_id, event)

    try:
        trained = train_here(runs, runs.load(job_id), tell)
    except TrajkitError as error:
        write_text(folder / FAILURE, str(error))
        raise
    except (RuntimeError, ValueError, OSError, MemoryError) as error:
        write_text(folder / FAILURE, (str(error).splitlines() or [type(error).__name__])[0])
        raise
    if is_first:
        write_text(folder / RESULT, trained.model_dump_json())
    distributed = need("torch", extra="local").distributed
    if distributed.is_initialized():
        distributed.destroy_process_group()  # a thread of it that outlives the interpreter aborts the process
    return 0


def _messages(tell: Callable[[JsonObject], None]) -> Callable[[str], None]:
    return lambda message: tell({"kind": "message", "message": message})


def _recipe(job: TuneJob, kind: type[Recipe]) -> Recipe:
    """Return the training's part of the job's recipe."""
    names = kind.model_fields
    return kind.model_validate({name: value for name, value in job.recipe.items() if name in names})


def _cancel(number: int, frame: FrameType | None) -> None:
    raise Cancelled


def _ended(runs: Runs, job: TuneJob, status: JobStatus, **found: object) -> int:
    """Record the end of a job, and return the exit code of its process."""
    # keep fields that others wrote meanwhile, such as the process
    update = {"status": status, "finished_at": datetime.now(UTC), **found}
    runs.save(runs.load(job.job_id).model_copy(update=update))
    runs.add_event(job.job_id, {"kind": "end", "status": status})
    return 0 if status == JobStatus.SUCCEEDED else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
