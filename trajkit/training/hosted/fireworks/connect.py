"""Fine-tuning at Fireworks, over its REST API.

The client chooses the id of a job there. It is made from the job's mark, so Fireworks itself refuses to
create the same job twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trajkit.errors import RequestError, ServiceError
from trajkit.formats.base import PreferenceFormat, SftFormat
from trajkit.formats.openai import FIREWORKS, OPENAI_DPO
from trajkit.formats.validation.target import HOSTED
from trajkit.schema.base import MOST, JsonObject
from trajkit.training.hosted.answer import Refused, moment, moment_of
from trajkit.training.hosted.facts import known_facts, price, read_recipe, slug
from trajkit.training.hosted.fireworks.data import Status, Wire, upload
from trajkit.training.hosted.fireworks.recipe import FireworksRecipe
from trajkit.training.hosted.rest import Rest, url_of
from trajkit.training.hosted.service import Event, ModelFacts, Order, RemoteId, Sent, Service, State
from trajkit.training.job import JobStatus, Step

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
    """Error of the job, if there is one."""
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


_KINDS = {"sft": ("supervisedFineTuningJobs", "supervisedFineTuningJobId"), "dpo": ("dpoJobs", "dpoJobId")}
_ENDED_WITHOUT = (JobStatus.FAILED, JobStatus.CANCELLED)
_MOST_ATTEMPTS = 50


def connect(settings: JsonObject) -> Fireworks:
    """Connect to Fireworks, with the key of FIREWORKS_API_KEY.

    Args:
        settings: `base_url`, for another address than Fireworks' own (default FIREWORKS_BASE_URL), and
            `account` (default FIREWORKS_ACCOUNT_ID, or the only account of the key).

    Raises:
        RequestError: The address is invalid.
    """
    account = settings.get("account") or os.environ.get("FIREWORKS_ACCOUNT_ID")
    whose = str(account).removeprefix("accounts/") if account else None
    return Fireworks(url_of(HOSTED["fireworks"], settings), account=whose)


class Account(Wire):
    """An account at Fireworks."""

    name: str
    """Its name, with `accounts/` before it."""
    suspend_state: str | None = None
    """Reason of a suspension; `UNSUSPENDED` or None if there is none."""


class Base(Wire):
    """A model at Fireworks."""

    tunable: bool | None = None
    """Whether it can be tuned; None when unknown."""
    context_length: int | None = None
    """Context length in tokens."""
    training_context_length: int | None = None
    """Maximum tokens per training row."""
    supports_tools: bool | None = None
    """Whether it supports tools."""


class Fireworks(Service):
    """Fireworks' service.

    Args:
        url: Address of its API.
        account: Name of the account; None for the only account of the key.
    """

    target = rules = "fireworks"
    methods = ("sft", "dpo")

    def __init__(self, url: str, *, account: str | None) -> None:
        self.where = url
        self._rest = Rest("Fireworks", url, HOSTED["fireworks"])
        self._account = None if account is None else f"accounts/{account}"

    @property
    def settings(self) -> JsonObject:
        """Settings of `connect`, without a key."""
        return {"base_url": self.where, "account": self._account}

    def format(self, method: str) -> SftFormat | PreferenceFormat:
        """Return the format of the rows."""
        return OPENAI_DPO if method == "dpo" else FIREWORKS

    def resolved(self, method: str, given: JsonObject) -> JsonObject:
        """Return the recipe, with trajkit's defaults."""
        return read_recipe(FireworksRecipe, method, given)

    def epochs(self, recipe: JsonObject, n_rows: int) -> float | None:
        """Return the number of passes over the rows."""
        return float(FireworksRecipe.model_validate(recipe).epochs)

    def known(self, model: str) -> ModelFacts:
        """Return the known facts about a model without a request."""
        return known_facts(
            model,
            "Fireworks gives the price once the job exists: `trajkit jobs cancel` can then end it",
            "a tuned model answers from its own deployment, which is paid for by uptime",
            "rows of more than 8,192 tokens may be cut off unless max_context_length is larger",
        )

    def preflight(self, model: str) -> ModelFacts:
        """Check a model at Fireworks before anything is sent; this also checks the key."""
        account = self._rest.read(Account, self._rest.get(f"/v1/{self._whose()}"))
        if account.suspend_state not in (None, "", "UNSUSPENDED"):
            raise ServiceError(
                f"{account.name} is suspended: {account.suspend_state}",
                hint="https://app.fireworks.ai/account/billing",
            )
        try:
            base = self._rest.read(Base, self._rest.get(f"/v1/{_whole(model)}"))
        except Refused as error:
            if error.status not in (400, 404):
                raise
            raise ServiceError(
                f"Fireworks has no model {model}: {error.said}",
                hint="https://app.fireworks.ai/models lists them; choose one marked as tunable",
            ) from error
        if base.tunable is False:
            raise ServiceError(
                f"Fireworks does not tune {model}",
                hint="https://app.fireworks.ai/models lists those that it does",
            )
        facts = self.known(model)
        more = () if base.supports_tools is not False else (f"{model} does not support tools",)
        longest = base.training_context_length or base.context_length or facts.max_tokens
        return facts.model_copy(update={"max_tokens": longest, "warnings": (*facts.warnings, *more)})

    def upload(self, path: Path, *, on_sent: Sent = lambda n_done, n_total: None) -> str:
        """Upload a file of rows and return its id, once Fireworks can read it."""
        return upload(self._rest, self._whose(), path, on_sent=on_sent)

    def find(self, order: Order) -> State | None:
        """Return the job of this order that did not end without a model."""
        found = self._last(order)[1]
        return None if found is None or found.status in _ENDED_WITHOUT else found

    def create(self, order: Order) -> State:
        """Create the job, once: Fireworks refuses a second job with the same id."""
        if order.method == "dpo" and order.validation_file is not None:
            raise RequestError("Fireworks has no validation for preferences", hint="leave --val out")
        kind, parameter = _KINDS[order.method]
        recipe = FireworksRecipe.model_validate(order.recipe)
        number, last = self._last(order)
        number += last is not None  # the last attempt ended without a model
        model = f"{slug(recipe.output_model or order.name)[:40]}-{order.mark[:8]}"
        if number > 1:
            model += f"-{number}"
        asked = recipe.request(
            order.method, base=_whole(order.base), output_model=f"{self._whose()}/models/{model}"
        )
        asked |= {"displayName": order.name, "dataset": order.training_file}
        if order.validation_file is not None:
            asked["evaluationDataset"] = order.validation_file
        job_id = _id(order, number)
        try:
            body = self._rest.post(f"/v1/{self._whose()}/{kind}", asked, **{parameter: job_id})
        except Refused as error:
            found = self.find(order) if error.status == 409 else None
            if found is None:
                raise
            return found
        return state_of(self._rest.read(Job, body))

    def status(self, remote_id: str) -> State:
        """Return the state of a job."""
        return state_of(self._job(remote_id))

    def events(self, remote_id: str, known: Container[str] = ()) -> Sequence[Event]:
        """Return the new events of a job, the oldest first."""
        job = self._job(remote_id)
        address = job.metrics_file_signed_url
        if address is None and "/dpoJobs/" in remote_id:
            address = self._rest.get(f"/v1/{remote_id}:getMetricsFileEndpoint").get("signedUrl")
        metrics = self._rest.text(str(address)) if address else None
        every = [*price(state_of(job).facts.get("expected_usd")), *steps(metrics or ""), *progress(job)]
        return [event for event in every if event.event_id not in known]

    def cancel(self, remote_id: str) -> State:
        """Cancel a job for good."""
        self._rest.post(f"/v1/{remote_id}:cancel")
        return self.status(remote_id)

    def resume(self, remote_id: str) -> State:
        """Resume a job that Fireworks paused because of the account."""
        self._rest.post(f"/v1/{remote_id}:resume")
        return self.status(remote_id)

    def delete_file(self, file_id: str) -> None:
        """Delete an uploaded dataset; a missing one is not an error."""
        self._rest.delete(f"/v1/{file_id}")

    def _whose(self) -> str:
        """Return the account's name, requested once if the user did not give it."""
        if self._account is None:
            found = self._rest.read_all(Account, self._rest.get("/v1/accounts"), "accounts")
            if len(found) != 1:
                names = ", ".join(each.name.removeprefix("accounts/") for each in found) or "none"
                raise RequestError(
                    "the key belongs to several Fireworks accounts, or to none",
                    hint=f"export FIREWORKS_ACCOUNT_ID=…; accounts of this key: {names}",
                )
            self._account = found[0].name
        return self._account

    def _job(self, remote_id: str) -> Job:
        return self._rest.read(Job, self._rest.get(f"/v1/{remote_id}"))

    def _last(self, order: Order) -> tuple[int, State | None]:
        """Return the last job of this order and its number; number 1 and None when there is none."""
        last: tuple[int, State | None] = (1, None)
        for number in range(1, _MOST_ATTEMPTS):
            try:
                state = self.status(f"{self._whose()}/{_KINDS[order.method][0]}/{_id(order, number)}")
            except Refused as error:
                if error.status != 404:
                    raise
                break
            last = (number, state)
            if state.status not in _ENDED_WITHOUT:
                break
        return last


def _id(order: Order, number: int) -> str:
    return f"trajkit-{order.mark[:24]}" + (f"-{number}" if number > 1 else "")


def _whole(model: str) -> str:
    """Return the full name of a model: `qwen3-8b` is one of Fireworks' own."""
    return model if "/" in model else f"accounts/fireworks/models/{model}"
