"""Fine-tuning at Together, over its REST API.

Together stores nothing of the client's with a job except for the suffix of the tuned model's name. The suffix
contains the job's mark, by which the job is found again.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from trajkit.errors import ServiceError
from trajkit.formats.base import PreferenceFormat, SftFormat
from trajkit.formats.openai import OPENAI_DPO
from trajkit.formats.together import TOGETHER
from trajkit.formats.validation.target import HOSTED
from trajkit.schema.base import JsonObject
from trajkit.training.hosted.answer import Refused, Said
from trajkit.training.hosted.facts import known_facts, price, read_recipe, slug
from trajkit.training.hosted.rest import Rest, url_of
from trajkit.training.hosted.service import (
    LISTING_LAG_S,
    Checkpoint,
    Event,
    ModelFacts,
    Order,
    Sent,
    Service,
    State,
)
from trajkit.training.hosted.together.answers import (
    Job,
    Kept,
    Measured,
    Told,
    checkpoints,
    messages,
    state_of,
    steps,
)
from trajkit.training.hosted.together.files import FILES, PART_BYTES, PARTS_FROM, upload
from trajkit.training.hosted.together.recipe import TogetherRecipe
from trajkit.training.job import JobStatus

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
    """Most tokens of a row."""
    supports_tools: bool | None = None
    """Whether it supports tools."""


class Together(Service):
    """Together's service.

    Args:
        url: Address of its API.
        parts_from: Size in bytes above which a file is sent in parts.
        part_bytes: Bytes of a part.
    """

    target = rules = "together"
    methods = ("sft", "dpo")
    listing_lag_s: float | None = LISTING_LAG_S

    def __init__(self, url: str, *, parts_from: int = PARTS_FROM, part_bytes: int = PART_BYTES) -> None:
        self.where = url
        self._rest = Rest("Together", url, HOSTED["together"])
        self._parts_from, self._part_bytes = parts_from, part_bytes

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
        """Ask Together about a model before anything is sent; this also checks the key."""
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
        sizes = {"parts_from": self._parts_from, "part_bytes": self._part_bytes}
        return upload(self._rest, path, on_sent=on_sent, **sizes)

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
        """Create the job, once, unless Together says that the account cannot pay for it."""
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
        """Ask for Together's estimate: a job that the account cannot pay for would be ended half-way."""
        names = ("model", "n_epochs", "n_evals", "training_file", "validation_file", "training_type")
        question = {name: asked[name] for name in (*names, "training_method") if name in asked}
        try:
            body = self._rest.post(f"{JOBS}/estimate-price", question)
        except Refused:  # some addresses cannot estimate; the price is then known afterwards
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
