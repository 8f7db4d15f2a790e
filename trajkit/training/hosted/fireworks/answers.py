"""Convert Fireworks' answers about a job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trajkit.schema.base import MOST
from trajkit.training.hosted.answer import moment, moment_of
from trajkit.training.hosted.fireworks.data import Status, Wire
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
    """A sum of money."""

    currency_code: str | None = None
    """Currency."""
    units: int = 0
    """Whole units."""
    nanos: int = 0
    """Billionths of a unit."""


class Progress(Wire):
    """The progress of a training."""

    percent: int | None = None
    """Per cent."""
    epoch: int | None = None
    """Epoch of the percentage, from 0; None when it is of the whole training."""


class Training(Wire):
    """A part of a preference job."""

    output_model: str | None = None
    """Name of the tuned model."""


class Job(Wire):
    """A job at Fireworks."""

    name: RemoteId
    """Full name, with the account's."""
    state: str = "JOB_STATE_UNSPECIFIED"
    """State of the job."""
    status: Status | None = None
    """Error of the job, where there is one."""
    output_model: str | None = None
    """Name of the tuned model."""
    training_config: Training | None = None
    """Part with the model's name in a preference job."""
    job_progress: Progress | None = None
    """Progress of the training."""
    estimated_cost: Money | None = None
    """Expected cost."""
    metrics_file_signed_url: str | None = None
    """Address of its losses."""
    update_time: str | None = None
    """Time of the last update."""


def state_of(job: Job) -> State:
    """Convert the state of a job."""
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
    """Yield the progress of the training as an event."""
    current = job.job_progress
    if current is None or current.percent is None:
        return
    of = "" if current.epoch is None else f" of epoch {current.epoch + 1}"
    yield Event(
        event_id=f"progress-{current.epoch or 0}-{current.percent}",
        at=moment(job.update_time),
        message=f"{current.percent} %{of}",
    )


def steps(metrics: str) -> Iterator[Event]:
    """Yield the losses of a metrics file as events. An incomplete last line is left for the next call."""
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
