"""The process in which a training runs: it goes on when the terminal that started it is gone.

python -m trajkit.targets.local.worker RUNS JOB
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from trajkit._lazy import need
from trajkit._lock import locked
from trajkit.errors import TrajkitError
from trajkit.targets.job import JobStatus, TuneJob
from trajkit.targets.local.prepare import TRAIN_TOKENS, VALIDATION_TOKENS
from trajkit.targets.local.recipe import LocalRecipe
from trajkit.targets.local.train import Step, Trained, train
from trajkit.targets.runs import Runs

MODEL, LOCK, CHECKPOINTS = "model", "worker.lock", "checkpoints"


class Cancelled(BaseException):
    """Somebody asked the process to end."""


def main(arguments: list[str]) -> int:
    """Train the job, write down what happens, and what came of it."""
    runs, job_id = Runs(Path(arguments[0])), arguments[1]
    signal.signal(signal.SIGTERM, _cancel)
    with locked(runs.path(job_id) / LOCK) as holder:
        if holder is not None:
            print(f"{holder} trains this job already", file=sys.stderr)  # noqa: T201 -- into the log
            return 1
        return work(runs, job_id)


def work(runs: Runs, job_id: str) -> int:
    """The same in this process; 0 when there is a model."""
    job = runs.load(job_id)
    try:
        trained = run(runs, job, lambda step: runs.add_event(job_id, {"kind": "step", **step._asdict()}))
    except Cancelled:
        return _ended(runs, job, JobStatus.CANCELLED, "it was cancelled")
    except TrajkitError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return _ended(runs, job, JobStatus.FAILED, f"{error.message}{hint}")
    except (RuntimeError, ValueError, OSError, MemoryError) as error:
        return _ended(runs, job, JobStatus.FAILED, _words(error))
    _save(runs, job, JobStatus.SUCCEEDED, result=trained.model_dump(mode="json"))
    return 0


def run(runs: Runs, job: TuneJob, on_step: Callable[[Step], None]) -> Trained:
    """Train a prepared job, from its last checkpoint if it has one; its model is in its folder then."""
    folder = runs.path(job.job_id)
    names = LocalRecipe.model_fields
    recipe = LocalRecipe.model_validate({name: value for name, value in job.recipe.items() if name in names})
    trained = train(
        job.base,
        folder / TRAIN_TOKENS,
        folder / MODEL,
        recipe,
        validation=folder / VALIDATION_TOKENS if job.validation is not None else None,
        workspace=folder / CHECKPOINTS,
        on_step=on_step,
    )
    transformers = need("transformers", extra="local")
    transformers.AutoTokenizer.from_pretrained(job.base).save_pretrained(folder / MODEL)
    return trained


def _cancel(number: int, frame: FrameType | None) -> None:
    raise Cancelled


def _ended(runs: Runs, job: TuneJob, status: JobStatus, error: str) -> int:
    _save(runs, job, status, error=error)
    return 1


def _save(runs: Runs, job: TuneJob, status: JobStatus, **found: object) -> None:
    # what others wrote meanwhile (the process that it is) stays
    update = {"status": status, "finished_at": datetime.now(UTC), **found}
    runs.save(runs.load(job.job_id).model_copy(update=update))
    runs.add_event(job.job_id, {"kind": "end", "status": status})


def _words(error: BaseException) -> str:
    text = str(error)
    if "out of memory" in text.lower() or isinstance(error, MemoryError):
        return (
            "out of memory: smaller per_device_train_batch_size with more gradient_accumulation_steps,"
            " shorter max_length, or gradient_checkpointing"
        )
    if isinstance(error, OSError) and error.errno is not None and "space" in (error.strerror or ""):
        return "the disk is full: make room, then resume the job"
    return text.splitlines()[0] if text else type(error).__name__


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
