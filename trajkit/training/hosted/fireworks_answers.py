"""What Fireworks says of a job, in our words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trajkit.schema.base import MOST
from trajkit.training.hosted.answer import moment, moment_of
from trajkit.training.hosted.fireworks_data import Status, Wire
from trajkit.training.hosted.service import Event, RemoteId, State
from trajkit.training.job import JobStatus
from trajkit.training.step import Step

_STATES = {
    "JOB_STATE_COMPLETED": JobStatus.SUCCEEDED,
    "JOB_STATE_EARLY_STOPPED": JobStatus.SUCCEEDED,
    "JOB_STATE_FAILED": JobStatus.FAILED,
    "JOB_STATE_EXPIRED": JobStatus.FAILED,
    "JOB_STATE_CANCELLED": JobStatus.CANCELLED,
    "JOB_STATE_DELETED": JobStatus.CANCELLED,
    "JOB_STATE_DELETING": JobStatus.CANCELLED,
    "JOB_STATE_DELETING_CLEANING_UP": JobStatus.CANCELLED,
    "JOB_STATE_ARCHIVED": JobStatus.CANCELLED,
}
_PAUSED = "JOB_STATE_PAUSED"


class Money(Wire):
    """A sum."""

    currency_code: str | None = None
    """Of which currency."""
    units: int = 0
    """Whole ones."""
    nanos: int = 0
    """And billionths."""


class Progress(Wire):
    """How far a training is."""

    percent: int | None = None
    """In hundredths."""
    epoch: int | None = None
    """Of which epoch, from 0; None when it is of the whole."""


class Training(Wire):
    """What a job of preferences keeps one level deeper."""

    output_model: str | None = None
    """Name of the tuned model."""


class Job(Wire):
    """A job at Fireworks."""

    name: RemoteId
    """Its whole name, with the account's."""
    state: str = "JOB_STATE_UNSPECIFIED"
    """How far it is."""
    status: Status | None = None
    """What is wrong with it, where something is."""
    output_model: str | None = None
    """Name of the tuned model."""
    training_config: Training | None = None
    """Where a job of preferences has it."""
    job_progress: Progress | None = None
    """How far the training is."""
    estimated_cost: Money | None = None
    """What it is expected to cost."""
    metrics_file_signed_url: str | None = None
    """Where its losses are."""
    update_time: str | None = None
    """When all that was so."""


def state_of(job: Job) -> State:
    """How far a job is."""
    status = _STATES.get(job.state, JobStatus.RUNNING)
    has_failed = status == JobStatus.FAILED and job.status is not None
    model = job.output_model or (None if job.training_config is None else job.training_config.output_model)
    cost = job.estimated_cost
    is_usd = cost is not None and cost.currency_code in (None, "USD")
    return State(
        remote_id=job.name,
        status=status,
        said=job.state,
        is_paused=job.state == _PAUSED,
        error=job.status.message if has_failed and job.status is not None else None,
        error_code=job.status.code if has_failed and job.status is not None else None,
        model=model if status == JobStatus.SUCCEEDED else None,
        facts={"expected_usd": cost.units + cost.nanos / 1e9} if cost is not None and is_usd else {},
    )


def progress(job: Job) -> Iterator[Event]:
    """How far the training is, as an event."""
    told = job.job_progress
    if told is None or told.percent is None:
        return
    of = "" if told.epoch is None else f" of epoch {told.epoch + 1}"
    yield Event(
        event_id=f"progress-{told.epoch or 0}-{told.percent}",
        at=moment(job.update_time),
        message=f"{told.percent} %{of}",
    )


def steps(metrics: str) -> Iterator[Event]:
    """The losses of a metrics file, as events. A line that is being written is left for the next time."""
    for line in metrics.splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            continue
        said = row["data"] if isinstance(row.get("data"), dict) else row
        loss, eval_loss = _number(said, "train/loss", "loss"), _number(said, "eval/loss", "eval_loss")
        at = _number(row, "timestamp")
        for name, one, other in (("train", loss, None), ("eval", None, eval_loss)):
            if one is None and other is None:
                continue
            yield Event(
                event_id=f"{name}-{row['step']}",
                at=moment_of(at),
                step=Step(
                    n_done=row["step"],
                    n_total=None,
                    epoch=_number(said, "train/epoch", "epoch"),
                    loss=one,
                    eval_loss=other,
                    learning_rate=_number(said, "train/lr", "train/learning_rate", "learning_rate"),
                ),
            )


def _number(row: Mapping[str, Any], *names: str) -> float | None:
    for name in names:
        value = row.get(name)
        if isinstance(value, int | float) and abs(value) <= MOST:
            return float(value)
    return None
