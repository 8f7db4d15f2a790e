"""Convert Together's answers about a job."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from pydantic import Field

from trajkit.training.hosted.answer import Said, moment, moment_of
from trajkit.training.hosted.service import Checkpoint, Event, RemoteId, State
from trajkit.training.job import JobStatus
from trajkit.training.step import Step

_STATUSES = {
    "completed": JobStatus.SUCCEEDED,
    "cancelled": JobStatus.CANCELLED,
    "error": JobStatus.FAILED,
    "user_error": JobStatus.FAILED,
}
_LEVELS = {"warning": "warn", "legacy_iwarning": "warn", "legacy_ierror": "error", "legacy_info": "info"}
_NANODOLLARS = 1e9
_FACTS = ("batch_size", "learning_rate", "n_epochs", "n_evals", "adapter_object_name", "wandb_url")


class Progress(Said):
    """The estimated time to the end."""

    estimate_available: bool = False
    """Whether there is an estimate."""
    seconds_remaining: float = 0
    """The estimate."""


class Told(Said):
    """An event of a job at Together."""

    type: str = ""
    """Kind of event, in lower or upper case."""
    message: str | None = None
    """The message."""
    level: str | None = None
    """Severity, in lower or upper case."""
    created_at: str | None = None
    """Time of the event."""
    total_steps: int | None = None
    """Steps of the training, where known."""


class Job(Said):
    """A job at Together."""

    id: RemoteId
    """Its id."""
    status: str
    """Status of the job."""
    model_output_name: str | None = None
    """Name of the tuned model, known from the start."""
    suffix: str | None = None
    """The requested suffix of that name."""
    training_file: str | None = None
    """Id of the training rows."""
    validation_file: str | None = None
    """Id of the validation rows."""
    created_at: str | None = None
    """Time of its creation."""
    token_count: int | None = None
    """Paid tokens."""
    total_price: float | None = None
    """Price, in billionths of a dollar."""
    progress: Progress | None = None
    """Estimated time to the end."""
    events: list[Told] | None = None
    """Events; None where the answer has none."""


def state_of(job: Job, body: dict[str, Any], told: Iterable[Told] = ()) -> State:
    """Convert the state of a job.

    Args:
        job: Together's answer.
        body: The same answer, untyped.
        told: Events, for the reason of a failure.
    """
    status = _STATUSES.get(job.status, JobStatus.RUNNING)
    has_failed = status == JobStatus.FAILED
    is_done = status == JobStatus.SUCCEEDED
    return State(
        remote_id=job.id,
        status=status,
        said=job.status,
        error=_why(told) if has_failed else None,
        model=job.model_output_name if is_done else None,
        n_trained_tokens=job.token_count or None,
        cost_usd=job.total_price / _NANODOLLARS if job.total_price else None,
        estimated_end=_end(job.progress) if status == JobStatus.RUNNING else None,
        facts={name: body[name] for name in _FACTS if body.get(name) is not None},
    )


def _end(progress: Progress | None) -> datetime | None:
    if progress is None or not progress.estimate_available:
        return None
    return moment_of(time.time() + progress.seconds_remaining)


def _why(told: Iterable[Told]) -> str | None:
    words = [
        each.message
        for each in told
        if each.message and (_level(each) == "error" or each.type.lower() in ("job_error", "job_user_error"))
    ]
    return words[-1] if words else None


def _level(told: Told) -> str:
    level = (told.level or "info").lower()
    return _LEVELS.get(level, level)


def messages(told: Iterable[dict[str, Any]]) -> Iterator[Event]:
    """Convert events."""
    for body in told:
        each = Told.model_validate(body)
        print_of = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        yield Event(
            event_id=f"{each.type.lower() or 'event'}-{print_of[:16]}",
            at=moment(each.created_at),
            level=_level(each),
            message=each.message or each.type.lower().replace("_", " "),
        )


class Measured(Said):
    """The losses of a step."""

    timestamp: float | None = None
    """Nanoseconds since 1970."""
    train_step: float | None = Field(default=None, alias="train/global_step")
    """Optimizer steps at a training loss."""
    eval_step: float | None = Field(default=None, alias="eval/global_step")
    """Optimizer steps at a validation loss."""
    train_loss: float | None = Field(default=None, alias="train/loss")
    """Training loss of the learned tokens."""
    eval_loss: float | None = Field(default=None, alias="eval/loss")
    """Validation loss."""
    train_epoch: float | None = Field(default=None, alias="train/epoch")
    """Passes over the rows at a training loss."""
    eval_epoch: float | None = Field(default=None, alias="eval/epoch")
    """Passes over the rows at a validation loss."""
    learning_rate: float | None = Field(default=None, alias="train/learning_rate")
    """Learning rate at this step."""


def steps(metrics: Iterable[Measured], n_total: int | None) -> Iterator[Event]:
    """Convert losses to events: training and validation losses are separate rows."""
    for row in metrics:
        n_done = row.eval_step if row.train_step is None else row.train_step
        if n_done is None or (row.train_loss is None and row.eval_loss is None):
            continue
        yield Event(
            event_id=f"{'train' if row.eval_loss is None else 'eval'}-{int(n_done)}",
            at=None if row.timestamp is None else moment_of(row.timestamp / 1e9),
            step=Step(
                n_done=int(n_done),
                n_total=n_total,
                epoch=row.eval_epoch if row.train_epoch is None else row.train_epoch,
                loss=row.train_loss,
                eval_loss=row.eval_loss,
                learning_rate=row.learning_rate,
            ),
        )


class Kept(Said):
    """A checkpoint at Together."""

    step: int
    """Steps of the optimizer."""
    object_name: str | None = None
    """Its name among the account's models."""


def checkpoints(job_id: str, kept: Iterable[Kept]) -> list[Checkpoint]:
    """Convert the checkpoints, the oldest first."""
    found = {
        each.object_name or f"{job_id}:{each.step}": each.step
        for each in sorted(kept, key=lambda one: one.step)
    }
    return [Checkpoint(model=name, n_steps=step) for name, step in found.items()]
