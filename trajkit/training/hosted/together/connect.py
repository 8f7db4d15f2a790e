"""Fine-tuning at Together, over its REST API.

Together stores nothing of the client's with a job except for the suffix of the tuned model's name. The suffix
contains the job's mark, by which the job is found again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import Field

from trajkit.errors import ServiceError
from trajkit.formats.base import PreferenceFormat, SftFormat
from trajkit.formats.openai import OPENAI_DPO, TOGETHER
from trajkit.formats.validation.target import HOSTED
from trajkit.schema.base import JsonObject
from trajkit.training.hosted.answer import Refused, Said, moment, moment_of
from trajkit.training.hosted.facts import known_facts, price, read_recipe, slug
from trajkit.training.hosted.rest import Rest, url_of
from trajkit.training.hosted.service import (
    LISTING_LAG_S,
    Checkpoint,
    Event,
    ModelFacts,
    Order,
    RemoteId,
    Sent,
    Service,
    State,
)
from trajkit.training.hosted.together.files import FILES, upload
from trajkit.training.hosted.together.recipe import TogetherRecipe
from trajkit.training.job import JobStatus, Step

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
    """Events; None if the answer has none."""


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


JOBS = "/v1/fine-tunes"
_SUFFIX_LENGTH = 40
_MARK_LENGTH = 12
_ENDED_WITHOUT = (JobStatus.FAILED, JobStatus.CANCELLED)


def connect(settings: JsonObject) -> Together:
    """Connect to Together, with the key of TOGETHER_API_KEY.

    Args:
        settings: `base_url`, for another address than Together's own; default TOGETHER_BASE_URL.

    Raises:
        RequestError: The address is invalid.
    """
    return Together(url_of(HOSTED["together"], settings))


class Limits(Said):
    """Together's facts about a tunable model."""

    max_seq_length_sft: int | None = None
    """Maximum tokens per row."""
    supports_tools: bool | None = None
    """Whether it supports tools."""


class Together(Service):
    """Together's service.

    Args:
        url: Address of its API.
    """

    target = rules = "together"
    methods = ("sft", "dpo")
    listing_lag_s: float | None = LISTING_LAG_S

    def __init__(self, url: str) -> None:
        self.where = url
        self._rest = Rest("Together", url, HOSTED["together"])

    @property
    def settings(self) -> JsonObject:
        """Settings of `connect`, without a key."""
        return {"base_url": self.where}

    def format(self, method: str) -> SftFormat | PreferenceFormat:
        """Return the format of the rows."""
        return OPENAI_DPO if method == "dpo" else TOGETHER

    def resolved(self, method: str, given: JsonObject) -> JsonObject:
        """Return the recipe, with trajkit's defaults."""
        return read_recipe(TogetherRecipe, method, given)

    def epochs(self, recipe: JsonObject, n_rows: int) -> float | None:
        """Return the number of passes over the rows."""
        return float(TogetherRecipe.model_validate(recipe).n_epochs)

    def known(self, model: str) -> ModelFacts:
        """Return the known facts about a model without a request."""
        return known_facts(
            model,
            "Together gives the price once it has the rows; it takes no job that the account cannot pay for",
            "a tuned model may need a dedicated endpoint, which is paid for by the minute",
        )

    def preflight(self, model: str) -> ModelFacts:
        """Check a model at Together before anything is sent; this also checks the key."""
        try:
            body = self._rest.get(f"{JOBS}/models/limits", model_name=model)
        except Refused as error:
            if error.status not in (400, 404, 422):
                raise
            raise ServiceError(
                f"Together does not tune {model}: {error.said}",
                hint="https://docs.together.ai/docs/fine-tuning-models lists tunable models",
            ) from error
        limits = self._rest.read(Limits, body)
        facts = self.known(model)
        more = () if limits.supports_tools is not False else (f"{model} does not support tools",)
        return facts.model_copy(
            update={
                "max_tokens": limits.max_seq_length_sft or facts.max_tokens,
                "warnings": (*facts.warnings, *more),
            }
        )

    def upload(self, path: Path, *, on_sent: Sent = lambda n_done, n_total: None) -> str:
        """Upload a file of rows and return its id, once Together has checked it."""
        return upload(self._rest, path, on_sent=on_sent)

    def find(self, order: Order) -> State | None:
        """Return the newest job of this order that did not end without a model."""
        mark = order.mark[:_MARK_LENGTH]
        found = [
            (job, body)
            for job, body in self._jobs()
            if mark in (job.suffix or job.model_output_name or "")
            and state_of(job, body).status not in _ENDED_WITHOUT
        ]
        if not found:
            return None
        newest, _ = max(found, key=lambda one: one[0].created_at or "")
        return self.status(newest.id)

    def create(self, order: Order) -> State:
        """Create the job, once, unless Together reports that the account cannot pay for it."""
        recipe = TogetherRecipe.model_validate(order.recipe)
        asked = recipe.request(order.method, has_validation=order.validation_file is not None)
        asked |= {"model": order.base, "training_file": order.training_file, "suffix": _suffix(order, recipe)}
        if order.validation_file is not None:
            asked["validation_file"] = order.validation_file
        expected = self._payable(asked)
        body = self._rest.post(JOBS, asked)
        state = state_of(self._rest.read(Job, body), body)
        return state.model_copy(update={"facts": {**state.facts, **expected}})

    def status(self, remote_id: str) -> State:
        """Return the state of a job."""
        return self._state(self._rest.get(f"{JOBS}/{remote_id}"))

    def events(self, remote_id: str, known: Container[str] = ()) -> Sequence[Event]:
        """Return the new events of a job, the oldest first."""
        cost_usd = self.status(remote_id).cost_usd
        happened = self._rest.get(f"{JOBS}/{remote_id}/events")
        told = self._rest.read_all(Told, happened, "data")
        n_total = max((each.total_steps for each in told if each.total_steps), default=None)
        try:
            body = self._rest.get(f"{JOBS}/{remote_id}/metrics")
        except Refused:  # the training has not begun
            body = {}
        metrics = self._rest.read_all(Measured, body, "metrics")
        every = [*messages(happened.get("data") or ()), *price(cost_usd), *steps(metrics, n_total)]
        every.sort(key=lambda event: (event.at is not None, event.at))
        return [event for event in every if event.event_id not in known]

    def checkpoints(self, remote_id: str) -> Sequence[Checkpoint]:
        """Return the checkpoints, the oldest first."""
        body = self._rest.get(f"{JOBS}/{remote_id}/checkpoints")
        return checkpoints(remote_id, self._rest.read_all(Kept, body, "data"))

    def cancel(self, remote_id: str) -> State:
        """Cancel a job for good."""
        return self._state(self._rest.post(f"{JOBS}/{remote_id}/cancel"))

    def delete_file(self, file_id: str) -> None:
        """Delete an uploaded file, unless another job uses it: Together stores equal files once."""
        for job, body in self._jobs():
            is_read = file_id in (job.training_file, job.validation_file)
            if is_read and not state_of(job, body).status.is_final:
                return
        self._rest.delete(f"{FILES}/{file_id}")

    def _jobs(self) -> list[tuple[Job, JsonObject]]:
        listed = self._rest.get(JOBS)
        if "data" not in listed:  # not a listing, so nothing is known about its items
            listed = {"data": listed}
        return list(zip(self._rest.read_all(Job, listed, "data"), listed["data"] or (), strict=True))

    def _state(self, body: dict[str, Any]) -> State:
        job = self._rest.read(Job, body)
        found = state_of(job, body)
        if found.status != JobStatus.FAILED:
            return found
        told = job.events
        if not told:
            told = self._rest.read_all(Told, self._rest.get(f"{JOBS}/{job.id}/events"), "data")
        return state_of(job, body, told)

    def _payable(self, asked: JsonObject) -> JsonObject:
        """Request Together's estimate: Together would stop a job halfway that the account cannot pay for."""
        names = ("model", "n_epochs", "n_evals", "training_file", "validation_file", "training_type")
        question = {name: asked[name] for name in (*names, "training_method") if name in asked}
        try:
            body = self._rest.post(f"{JOBS}/estimate-price", question)
        except Refused:  # some addresses cannot estimate; then the price is known only later
            return {}
        price, limit = body.get("estimated_total_price"), body.get("user_limit")
        if body.get("allowed_to_proceed") is False:
            raise ServiceError(
                f"Together expects {_usd(price)} for this job, and the account has {_usd(limit)} left",
                hint="add credit at https://api.together.ai/settings/billing, or train on less",
            )
        return {"expected_usd": price} if isinstance(price, int | float) else {}


def _suffix(order: Order, recipe: TogetherRecipe) -> str:
    """Return the job's name and its mark, within Together's limit."""
    words = slug(recipe.suffix or order.name)[: _SUFFIX_LENGTH - _MARK_LENGTH - 1]
    return f"{words.rstrip('-')}-{order.mark[:_MARK_LENGTH]}"


def _usd(amount: Any) -> str:
    return f"{amount:,.2f} USD" if isinstance(amount, int | float) else "an unknown sum"
