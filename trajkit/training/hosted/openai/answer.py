"""Convert the answers of OpenAI's fine-tuning API; unknown fields are ignored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from trajkit.schema.base import JsonObject
from trajkit.training.hosted.answer import moment_of
from trajkit.training.hosted.service import Checkpoint, Event, State
from trajkit.training.job import JobStatus
from trajkit.training.step import Step

_STATUSES = {
    "succeeded": JobStatus.SUCCEEDED,
    "failed": JobStatus.FAILED,
    "cancelled": JobStatus.CANCELLED,
    "canceled": JobStatus.CANCELLED,
}
_MOST_FILES = 100
_PAUSED = ("paused", "pausing")
_STEP_OF = re.compile(r"[Ss]tep (\d+)(?:/(\d+))?")


def state_of(job: Mapping[str, Any]) -> State:
    """Convert the state of a job."""
    said = str(job.get("status") or "unknown")
    word = said.lower()
    error = job.get("error")
    error = error if isinstance(error, Mapping) else {}  # both `{}` and null mean no error
    return State(
        remote_id=job["id"],
        status=_STATUSES.get(word, JobStatus.RUNNING),
        said=said,
        is_paused=word in _PAUSED,
        error=_text(error.get("message")),
        error_code=_text(error.get("code")),
        model=_text(job.get("fine_tuned_model")),
        n_trained_tokens=_count(job.get("trained_tokens")),
        result_files=tuple(str(name) for name in _list(job.get("result_files")) if name),
        estimated_end=_time(job.get("estimated_finish")),
        facts=_facts(job),
    )


def event_of(event: Mapping[str, Any]) -> Event:
    """Convert an event."""
    message = _text(event.get("message")) or ""
    return Event(
        event_id=str(event["id"]),
        at=_time(event.get("created_at")),
        level=_text(event.get("level")) or "info",
        message=message,
        step=_step(event.get("data"), message),
    )


def _step(data: Any, message: str) -> Step | None:
    """Return the losses of an event; None where it has none."""
    if not isinstance(data, Mapping):
        return None
    number = _count(data.get("step"))
    loss = _number(data.get("train_loss"))
    full = _number(data.get("full_valid_loss"))
    eval_loss = full if full is not None else _number(data.get("valid_loss"))
    if number is None or (loss is None and eval_loss is None):
        return None
    counted = _STEP_OF.search(message)
    total = _count(data.get("total_steps"))
    if total is None and counted is not None and counted[2] is not None:
        total = int(counted[2])
    return Step(number, total, None, loss, eval_loss, None)


def checkpoint_of(checkpoint: Mapping[str, Any]) -> Checkpoint | None:
    """Convert a checkpoint; None where it has no name."""
    name = _text(checkpoint.get("fine_tuned_model_checkpoint"))
    if name is None:
        return None
    metrics = checkpoint.get("metrics")
    metrics = metrics if isinstance(metrics, Mapping) else {}
    full = _number(metrics.get("full_valid_loss"))
    return Checkpoint(
        model=name,
        n_steps=_count(checkpoint.get("step_number")),
        loss=_number(metrics.get("train_loss")),
        eval_loss=full if full is not None else _number(metrics.get("valid_loss")),
    )


def day_of(value: Any) -> date | None:
    """Parse a day from a date or from seconds; None when it is neither."""
    if isinstance(value, str):
        try:
            return date.fromisoformat(value[:10])
        except ValueError:
            return None
    at = _time(value)
    return None if at is None else at.date()


def _facts(job: Mapping[str, Any]) -> JsonObject:
    """Return the settings that the service chose."""
    found: JsonObject = {}
    method = job.get("method")
    if isinstance(method, Mapping) and isinstance(part := method.get(str(method.get("type"))), Mapping):
        found["hyperparameters"] = part.get("hyperparameters")
    if not found.get("hyperparameters"):
        found["hyperparameters"] = job.get("hyperparameters")
    for name in ("seed", "organization_id", "model", "training_file", "validation_file"):
        found[name] = job.get(name)
    return {name: value for name, value in found.items() if value not in (None, {}, "")}


def _list(value: Any) -> list[Any]:
    return value[:_MOST_FILES] if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < float("inf") else None


def _count(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number >= 0 else None


def _time(value: Any) -> datetime | None:
    return moment_of(_number(value))
