"""Fine-tune over OpenAI's API, at OpenAI and at other services that have it."""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Container, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

from trajkit._core.files import replacing
from trajkit._core.lazy import need
from trajkit.errors import ServiceError
from trajkit.formats.base import PreferenceFormat, SftFormat
from trajkit.formats.openai import OPENAI_DPO, OPENAI_SFT
from trajkit.formats.validation.prices import load_prices
from trajkit.formats.validation.target import HostedService
from trajkit.schema.base import JsonObject
from trajkit.training.hosted.answer import moment_of
from trajkit.training.hosted.facts import known_facts
from trajkit.training.hosted.openai.client import OPENAI, Client, address_of, first_page, objects, upload
from trajkit.training.hosted.openai.recipe import OpenAIRecipe, arguments_of, read_recipe, usual_epochs
from trajkit.training.hosted.service import (
    LISTING_LAG_S,
    MOST_EVENTS,
    Checkpoint,
    Event,
    ModelFacts,
    Order,
    Sent,
    Service,
    State,
)
from trajkit.training.job import JobStatus, Step

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
    files = job.get("result_files")
    files = files if isinstance(files, list) else []
    return State(
        remote_id=job["id"],
        status=_STATUSES.get(word, JobStatus.RUNNING),
        said=said,
        is_paused=word in _PAUSED,
        error=_text(error.get("message")),
        error_code=_text(error.get("code")),
        model=_text(job.get("fine_tuned_model")),
        n_trained_tokens=_count(job.get("trained_tokens")),
        result_files=tuple(str(name) for name in files[:_MOST_FILES] if name),
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
    """Return the losses of an event; None if it has none."""
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
    """Convert a checkpoint; None if it has no name."""
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


MARK = "trajkit_run"
"""Key of `Order.mark` in a job's metadata."""
_LONG_S = 600.0
"""Seconds that an upload or the creation of a job may take."""
_MOST_JOBS, _MOST_CHECKPOINTS = 1000, 1000
_NEVER_SUCCEED = (JobStatus.FAILED, JobStatus.CANCELLED)


def connect(settings: JsonObject) -> Service:
    """Connect to the service of `profile` and `base_url`; see `client.address_of`."""
    return OpenAIService(*address_of(settings))


class OpenAIService(Service):
    """A service with OpenAI's fine-tuning API.

    Args:
        profile: The service.
        url: Address of the API, including `/v1`.
    """

    target = "openai"
    methods: Sequence[str] = ("sft", "dpo")
    has_pause = True
    listing_lag_s: float | None = LISTING_LAG_S

    def __init__(self, profile: HostedService, url: str) -> None:
        self.profile, self.where, self.rules = profile, url, profile.rows.name
        self._is_openai = profile.name == OPENAI.name
        self._client = Client(profile, url)

    @property
    def usual_model(self) -> str | None:
        """Model that is tuned by default; None if the user must name one."""
        return self.profile.default_model

    @property
    def settings(self) -> JsonObject:
        """Profile and address."""
        return {"profile": self.profile.name, "base_url": self.where}

    def format(self, method: str) -> SftFormat | PreferenceFormat:
        """Return the format of the rows."""
        return OPENAI_SFT if method == "sft" else OPENAI_DPO

    def resolved(self, method: str, given: JsonObject) -> JsonObject:
        """Parse the recipe."""
        return read_recipe(given, method=method, rules=self.rules).model_dump(mode="json")

    def epochs(self, recipe: JsonObject, n_rows: int) -> float | None:
        """Return the number of passes over the rows."""
        asked = OpenAIRecipe.model_validate(recipe).n_epochs
        if asked != "auto":
            return asked
        return usual_epochs(n_rows) if self._is_openai else None

    def known(self, model: str) -> ModelFacts:
        """Return the facts in trajkit's own file; prices and dates are valid for OpenAI only."""
        facts = known_facts(model, *(() if self.profile.note is None else (self.profile.note,)))
        if self._is_openai:
            return facts
        theirs = ("usd_per_million_tokens", "price_as_of", "last_job_on", "shutdown_on")
        return facts.model_copy(update=dict.fromkeys(theirs))

    def preflight(self, model: str) -> ModelFacts:
        """Request the model and earlier jobs; this shows whether the organisation may create jobs."""
        facts = self.known(model)
        found = self._model(model)
        update: dict[str, Any] = {}
        if found is None:
            update["warnings"] = (
                *facts.warnings,
                f"{self.where} does not list {model}: is it the right name?",
            )
            found = {}
        dates = found.get("deprecation")
        dates = dates if isinstance(dates, Mapping) else {}  # Azure's dates of tuning and of use
        for name, value in (
            ("shutdown_on", found.get("shutdown_date") or dates.get("inference")),
            ("last_job_on", dates.get("fine_tune")),
        ):
            if (day := day_of(value)) is not None:
                update[name] = day
        facts = facts.model_copy(update=update)
        with self._client.talk("asking for earlier jobs") as client:
            n_jobs = len(first_page(client.fine_tuning.jobs.list(limit=1)))
        if self._is_openai and not n_jobs:
            said = (
                "this project has no earlier job: since 2026-05-07 OpenAI takes jobs only from organisations"
                " that have, and the job may be refused"
            )
            facts = facts.model_copy(update={"warnings": (*facts.warnings, said)})
        return facts

    def _model(self, model: str) -> Mapping[str, Any] | None:
        """Return the service's facts about a model; None if a service beside OpenAI does not list it."""
        openai = need("openai", extra="openai")
        with self._client.talk(f"asking for {model}") as client:
            try:
                return self._client.read(client.models.retrieve(model), "asking for the model")
            except openai.NotFoundError as error:
                if not self._is_openai:
                    return None
                known = ", ".join(each.name for each in load_prices().models if each.last_job_on is not None)
                raise ServiceError(
                    f"no model {model!r} at {self.where}: {self._client.safe(error.message)}",
                    hint=f"models that can be tuned: {known}",
                ) from None

    def upload(self, path: Path, *, on_sent: Sent = lambda n_done, n_total: None) -> str:
        """Upload a file, in parts if it is large."""
        with self._client.talk(f"uploading {path.name}", timeout_s=_LONG_S) as client:
            sent = upload(client, path, parts_from=self.profile.parts_from, on_sent=on_sent)
        return str(self._client.read(sent, "uploading")["id"])

    def find(self, order: Order) -> State | None:
        """Find the job by the mark in its metadata, and by its file."""
        with self._client.talk("looking for the job") as client:
            jobs = client.fine_tuning.jobs
            listings: list[Any] = []
            if self.profile.has_metadata:
                listings.append(jobs.list(limit=100, metadata={MARK: order.mark}))
            if order.training_file is not None:  # some services do not keep or search metadata
                listings.append(jobs.list(limit=100))
            for listing in listings:
                for job in objects(listing, _MOST_JOBS):
                    metadata = job.get("metadata")
                    mark = metadata.get(MARK) if isinstance(metadata, Mapping) else None
                    is_ours = mark == order.mark or (
                        order.training_file is not None and job.get("training_file") == order.training_file
                    )
                    if is_ours and (state := state_of(job)).status not in _NEVER_SUCCEED:
                        return state
        return None

    def create(self, order: Order) -> State:
        """Create the job, without retries."""
        recipe = OpenAIRecipe.model_validate(order.recipe)
        arguments = arguments_of(recipe, method=order.method, has_method=self.profile.has_method)
        if self.profile.has_metadata:
            arguments["metadata"] = {MARK: order.mark, "trajkit_job": order.name[:512]}
        if order.validation_file is not None:
            arguments["validation_file"] = order.validation_file
        with self._client.talk("creating the job", max_retries=0, timeout_s=_LONG_S) as client:
            job = client.fine_tuning.jobs.create(
                model=order.base, training_file=str(order.training_file), **arguments
            )
        return state_of(self._client.read(job, "creating the job"))

    def status(self, remote_id: str) -> State:
        """Return the state of a job."""
        with self._client.talk("asking for the job") as client:
            return state_of(
                self._client.read(client.fine_tuning.jobs.retrieve(remote_id), "asking for the job")
            )

    def events(self, remote_id: str, known: Container[str] = ()) -> Sequence[Event]:
        """Return the new events; the service lists the newest first."""
        found: list[Event] = []
        with self._client.talk("asking for events") as client:
            for event in objects(client.fine_tuning.jobs.list_events(remote_id, limit=100), MOST_EVENTS):
                if str(event.get("id")) in known:
                    break
                if event.get("id"):
                    found.append(event_of(event))
        found.reverse()  # keeps the order of events within one second
        return sorted(found, key=lambda event: event.at.timestamp() if event.at else 0.0)

    def checkpoints(self, remote_id: str) -> Sequence[Checkpoint]:
        """Return the kept checkpoints; none where the service does not support the request."""
        openai = need("openai", extra="openai")
        with self._client.talk("asking for checkpoints") as client:
            try:
                pages = client.fine_tuning.jobs.checkpoints.list(remote_id, limit=100)
                listed = list(objects(pages, _MOST_CHECKPOINTS))
            except openai.NotFoundError:
                return ()
        found = [checkpoint for each in listed if (checkpoint := checkpoint_of(each)) is not None]
        return tuple(sorted(found, key=lambda checkpoint: checkpoint.n_steps or 0))

    def cancel(self, remote_id: str) -> State:
        """Cancel a job for good."""
        with self._client.talk("cancelling the job") as client:
            return state_of(self._client.read(client.fine_tuning.jobs.cancel(remote_id), "cancelling"))

    def pause(self, remote_id: str) -> State:
        """Pause a job."""
        with self._client.talk("halting the job") as client:
            return state_of(self._client.read(client.fine_tuning.jobs.pause(remote_id), "halting"))

    def resume(self, remote_id: str) -> State:
        """Resume a job."""
        with self._client.talk("resuming the job") as client:
            return state_of(self._client.read(client.fine_tuning.jobs.resume(remote_id), "resuming"))

    def delete_file(self, file_id: str) -> None:
        """Delete an uploaded file."""
        openai = need("openai", extra="openai")
        with self._client.talk(f"removing {file_id}") as client, contextlib.suppress(openai.NotFoundError):
            client.files.delete(file_id)

    def fetch(self, file_id: str, goal: Path) -> None:
        """Write a result file; base64, as in OpenAI's tables of losses, is decoded."""
        with self._client.talk(f"fetching {file_id}") as client:
            content = client.files.content(file_id).read()
        with replacing(goal) as temporary:
            temporary.write_bytes(self._client.masked(_plain(content)))


def _plain(content: bytes) -> bytes:
    with contextlib.suppress(binascii.Error, ValueError):
        decoded = base64.b64decode(content.strip(), validate=True)
        if "," in decoded.decode("utf-8"):
            return decoded
    return content
