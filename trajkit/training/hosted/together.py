"""Fine-tuning at Together, over its REST API.

Together keeps no words of ours with a job but the suffix of the tuned model's name: the mark of the job is in
there, and it is found again by it.
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
from trajkit.training.hosted.together_answers import (
    Job,
    Kept,
    Measured,
    Told,
    checkpoints,
    messages,
    state_of,
    steps,
)
from trajkit.training.hosted.together_files import FILES, PART_BYTES, PARTS_FROM, upload
from trajkit.training.hosted.together_recipe import TogetherRecipe
from trajkit.training.job import JobStatus

JOBS = "/v1/fine-tunes"
_SUFFIX_LENGTH = 40
_MARK_LENGTH = 12
_ENDED_WITHOUT = (JobStatus.FAILED, JobStatus.CANCELLED)


def connect(settings: JsonObject) -> Together:
    """Together, with the key of TOGETHER_API_KEY.

    Args:
        settings: `base_url`, for another address than Together's own; else TOGETHER_BASE_URL says it.

    Raises:
        RequestError: The address is none.
    """
    return Together(url_of(HOSTED["together"], settings))


class Limits(Said):
    """What Together says of a model that it tunes."""

    max_seq_length_sft: int | None = None
    """Longest row."""
    supports_tools: bool | None = None
    """Whether it was made for tools."""


class Together(Service):
    """Together's service.

    Args:
        url: Where its API is.
        parts_from: A file of more bytes is sent in parts.
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
        """What `connect` needs; never a key."""
        return {"base_url": self.where}

    def format(self, method: str) -> SftFormat | PreferenceFormat:
        """How the rows are written."""
        return OPENAI_DPO if method == "dpo" else TOGETHER

    def resolved(self, method: str, given: JsonObject) -> JsonObject:
        """The recipe that is meant, with the defaults that are ours to choose."""
        return read_recipe(TogetherRecipe, method, given)

    def epochs(self, recipe: JsonObject, n_rows: int) -> float | None:
        """How often each row is learned."""
        return float(TogetherRecipe.model_validate(recipe).n_epochs)

    def known(self, model: str) -> ModelFacts:
        """What is known of a model without asking anybody."""
        return known_facts(
            model,
            "Together says the price once it has the rows; no job is made that the account cannot pay for",
            "a tuned model may need a dedicated endpoint to answer, which is paid for by the minute",
        )

    def preflight(self, model: str) -> ModelFacts:
        """What Together says of a model before anything is sent; it also takes or refuses the key."""
        try:
            body = self._rest.get(f"{JOBS}/models/limits", model_name=model)
        except Refused as error:
            if error.status not in (400, 404, 422):
                raise
            raise ServiceError(
                f"Together does not tune {model}: {error.said}",
                hint="https://docs.together.ai/docs/fine-tuning-models lists those that it does",
            ) from error
        limits = self._rest.read(Limits, body)
        facts = self.known(model)
        more = () if limits.supports_tools is not False else (f"{model} was not made to call tools",)
        return facts.model_copy(
            update={
                "max_tokens": limits.max_seq_length_sft or facts.max_tokens,
                "warnings": (*facts.warnings, *more),
            }
        )

    def upload(self, path: Path, *, on_sent: Sent = lambda n_done, n_total: None) -> str:
        """Send a file of rows; its id, once Together has looked at it."""
        sizes = {"parts_from": self._parts_from, "part_bytes": self._part_bytes}
        return upload(self._rest, path, on_sent=on_sent, **sizes)

    def find(self, order: Order) -> State | None:
        """The newest job of this order that did not end without a model."""
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
        """Create the job, once; not when Together says that the account cannot pay for it."""
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
        """How far it is."""
        return self._state(self._rest.get(f"{JOBS}/{remote_id}"))

    def events(self, remote_id: str, known: Container[str] = ()) -> Sequence[Event]:
        """What it told of a job, the oldest first, but for the events whose ids are known."""
        cost_usd = self.status(remote_id).cost_usd
        happened = self._rest.get(f"{JOBS}/{remote_id}/events")
        told = self._rest.read_all(Told, happened, "data")
        n_total = max((each.total_steps for each in told if each.total_steps), default=None)
        try:
            body = self._rest.get(f"{JOBS}/{remote_id}/metrics")
        except Refused:  # there is no training yet
            body = {}
        metrics = self._rest.read_all(Measured, body, "metrics")
        every = [*messages(happened.get("data") or ()), *price(cost_usd), *steps(metrics, n_total)]
        every.sort(key=lambda event: (event.at is not None, event.at))
        return [event for event in every if event.event_id not in known]

    def checkpoints(self, remote_id: str) -> Sequence[Checkpoint]:
        """Models on the way, the oldest first."""
        body = self._rest.get(f"{JOBS}/{remote_id}/checkpoints")
        return checkpoints(remote_id, self._rest.read_all(Kept, body, "data"))

    def cancel(self, remote_id: str) -> State:
        """End it for good."""
        return self._state(self._rest.post(f"{JOBS}/{remote_id}/cancel"))

    def delete_file(self, file_id: str) -> None:
        """Remove an uploaded file, unless a job reads it: Together keeps the same bytes once for all jobs."""
        for job, body in self._jobs():
            is_read = file_id in (job.training_file, job.validation_file)
            if is_read and not state_of(job, body).status.is_final:
                return
        self._rest.delete(f"{FILES}/{file_id}")

    def _jobs(self) -> list[tuple[Job, JsonObject]]:
        listed = self._rest.get(JOBS)
        if "data" not in listed:  # no listing: what it would have listed may be there
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
        """Together's own estimate: a job that the account cannot pay for would be ended half-way."""
        names = ("model", "n_epochs", "n_evals", "training_file", "validation_file", "training_type")
        question = {name: asked[name] for name in (*names, "training_method") if name in asked}
        try:
            body = self._rest.post(f"{JOBS}/estimate-price", question)
        except Refused:  # an address that does not estimate; the price is then said afterwards
            return {}
        price, limit = body.get("estimated_total_price"), body.get("user_limit")
        if body.get("allowed_to_proceed") is False:
            raise ServiceError(
                f"Together expects {_usd(price)} for this job, and the account has {_usd(limit)} left",
                hint="add credit at https://api.together.ai/settings/billing, or train less",
            )
        return {"expected_usd": price} if isinstance(price, int | float) else {}


def _suffix(order: Order, recipe: TogetherRecipe) -> str:
    """The job's own words and its mark, as long as Together lets them be."""
    words = slug(recipe.suffix or order.name)[: _SUFFIX_LENGTH - _MARK_LENGTH - 1]
    return f"{words.rstrip('-')}-{order.mark[:_MARK_LENGTH]}"


def _usd(amount: Any) -> str:
    return f"{amount:,.2f} USD" if isinstance(amount, int | float) else "an unknown sum"
