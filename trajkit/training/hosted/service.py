"""The protocol of a service that trains, and the models of its answers.

`trajkit.training.hosted.launch` does the work common to all services: it looks for an existing job,
uploads once, creates once, polls, records events and fetches results. A service only translates to its own
API. It never waits or prints, and writes only the requested file.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Container, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Protocol, runtime_checkable

from pydantic import Field

from trajkit.errors import RequestError
from trajkit.formats.base import PreferenceFormat, SftFormat
from trajkit.formats.validation.target import HOSTED
from trajkit.schema import Model
from trajkit.schema.base import Count, JsonObject, Name, Text, UtcTime
from trajkit.training.job import JobStatus, Step

Sent = Callable[[int, int], None]
"""Called with the bytes of a file that are sent, and the total."""

_PART = "[A-Za-z0-9_][A-Za-z0-9_.:@+=~-]*"
PLAIN = f"^{_PART}(/{_PART})*$"
"""Form of an id from a service, which becomes a part of addresses: no `..`, `?`, `#`."""
RemoteId = Annotated[Name, Field(pattern=PLAIN, max_length=500)]
"""An id from a service."""
LISTING_LAG_S = 60.0
"""Assumed seconds until a service lists a new job, where it documents none."""

MOST_EVENTS = 50_000
"""Maximum number of recorded events per job; a training has one or two per step."""


class ModelFacts(Model):
    """The known facts about a model, before anything is sent."""

    model: Name
    """The model, as the service names it."""
    usd_per_million_tokens: float | None = Field(default=None, ge=0)
    """Price of a million trained tokens (each pass over the rows counts); None when unknown."""
    price_as_of: date | None = None
    """Date of that price; None if it is the service's current price."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Maximum tokens per row; the rest is cut off or refused. None when unknown."""
    encoding: Name | None = None
    """Name of its tokenizer in tiktoken; None when that is not public."""
    last_job_on: date | None = None
    """Last day on which a job can be created; None when unknown."""
    shutdown_on: date | None = None
    """Day on which the model and all models tuned from it end; None when unknown."""
    warnings: tuple[Text, ...] = ()
    """Further notes for the user before paying, each a sentence without a full stop."""


class Order(Model):
    """A job for a service: known in full before its creation, and equal in every attempt."""

    mark: Name
    """Identifies the job at the service (64 hexadecimal digits): it is found and not created twice."""
    name: Name
    """Name of the job's folder."""
    method: Name = "sft"
    """`sft` or `dpo`."""
    base: Name
    """The base model."""
    training_file: Name | None = None
    """Id from `Service.upload`; None before the upload."""
    validation_file: Name | None = None
    """Id of the validation rows; None for none."""
    n_rows: Count
    """Rows of the training file."""
    recipe: JsonObject = {}
    """Result of `Service.resolved`."""


class Checkpoint(Model):
    """A checkpoint of a job."""

    model: Name
    """Name under which it answers."""
    n_steps: int | None = None
    """Steps of the optimizer; None when unknown."""
    loss: float | None = None
    """Training loss."""
    eval_loss: float | None = None
    """Validation loss."""


class State(Model):
    """The state of a job at the service."""

    remote_id: RemoteId
    """The service's id of the job."""
    status: JobStatus
    """Status in trajkit's terms; an unknown word of the service is RUNNING."""
    said: Text
    """Status in the service's terms, such as `validating_files` or `JOB_STATE_RUNNING`."""
    is_paused: bool = False
    """Whether it is paused, so that `Service.resume` continues it."""
    error: Text | None = None
    """The service's message of a failure."""
    error_code: Text | None = None
    """The service's error code."""
    model: Text | None = None
    """Name of the tuned model, once it exists."""
    n_trained_tokens: int | None = None
    """Paid tokens; None while unknown."""
    cost_usd: float | None = None
    """Cost; None when unknown."""
    result_files: tuple[Name, ...] = ()
    """Ids of its result files, for `Service.fetch`."""
    estimated_end: UtcTime | None = None
    """The service's estimate of its end."""
    facts: JsonObject = {}
    """Further facts to keep (chosen hyperparameters, the dashboard's address), never a key."""


class Event(Model):
    """An event of a job at a service."""

    event_id: Name
    """Unique within the job, so that it is recorded once."""
    at: UtcTime | None = None
    """Time of the event."""
    level: Text = "info"
    """`info`, `warn`, `error`, or a word of the service."""
    message: Text = ""
    """The service's message."""
    step: Step | None = None
    """Progress of the training, where the event has it."""


@runtime_checkable
class Service(Protocol):
    """One service, with one key.

    Every method that calls it raises `ServiceError` with a hint when the service refuses. Where only the
    network or the service itself failed, so that a retry may help, it is
    `trajkit.training.hosted.answer.Unreachable`; where the environment has no key, `answer.MissingKey`.
    No message contains the key.
    """

    target: str
    """Name for the user: `openai`, `together`, `fireworks`."""
    rules: str
    """Name of the rules for rows in `trajkit.formats.validation.target.TARGETS`."""
    where: str
    """Address of its API."""
    methods: Sequence[str]
    """Supported methods: `sft`, `dpo`."""
    has_pause: bool = False
    """Whether a running job can be paused and resumed."""
    listing_lag_s: float | None = None
    """Seconds until a new job is listed: until then `find` may miss it, and a second one would cost money.
    None if the service itself refuses to create a job twice."""

    @property
    def settings(self) -> JsonObject:
        """Settings with which `connect` reaches the same service from another process, without a key."""

    def format(self, method: str) -> SftFormat | PreferenceFormat:
        """Return the format of the rows."""

    def resolved(self, method: str, given: JsonObject) -> JsonObject:
        """Parse the recipe, with trajkit's defaults.

        Raises:
            RequestError: There is no such option, or its value is invalid.
        """

    def epochs(self, recipe: JsonObject, n_rows: int) -> float | None:
        """Return the number of passes over the rows; None when only the service knows it."""

    def known(self, model: str) -> ModelFacts:
        """Return the known facts about a model, without a request."""

    def preflight(self, model: str) -> ModelFacts:
        """Check a model at the service before anything is sent.

        Raises:
            ServiceError: The key is wrong, there is no such model, or no job may be created.
        """

    def upload(self, path: Path, *, on_sent: Sent = lambda n_done, n_total: None) -> str:
        """Upload a file of rows, in parts if it is large, and return its id."""

    def find(self, order: Order) -> State | None:
        """Return the newest job of this order that did not end without a model; None for none.

        It is identified by `Order.mark` where the service stores it, and by `Order.training_file`.
        """

    def create(self, order: Order) -> State:
        """Create the job, without any retry, because a second job would cost money."""

    def status(self, remote_id: str) -> State:
        """Return the state of a job."""

    def events(self, remote_id: str, known: Container[str] = ()) -> Sequence[Event]:
        """Return the new events of a job, the oldest first."""

    def checkpoints(self, remote_id: str) -> Sequence[Checkpoint]:
        """Return the checkpoints, the oldest first; empty if the service keeps none."""
        return ()

    def cancel(self, remote_id: str) -> State:
        """Cancel a job for good."""

    def pause(self, remote_id: str) -> State:
        """Pause a job; only where `has_pause`."""
        raise RequestError(f"{self.target} cannot pause a job", hint="`trajkit jobs cancel` ends it for good")

    def resume(self, remote_id: str) -> State:
        """Resume a job after `pause`, or where the service itself paused it."""
        raise RequestError(f"{self.target} cannot pause a job, so there is none to resume")

    def delete_file(self, file_id: str) -> None:
        """Delete an uploaded file; a missing one is not an error."""

    def fetch(self, file_id: str, goal: Path) -> None:
        """Write a result file to `goal`; only where `State.result_files` names one."""
        raise RequestError(f"{self.target} has no result file {file_id!r}")


def connect(target: str, settings: JsonObject) -> Service:
    """Connect to a service, with its key in the environment.

    Args:
        target: Name of the service.
        settings: Earlier `Service.settings`, or those of the user; empty for the defaults.

    Raises:
        RequestError: There is no such service, or a setting is invalid. A missing key is reported by the
            first call.
    """
    apis = dict.fromkeys(service.api for service in HOSTED.values())
    if target not in apis:
        raise RequestError(f"no service {target!r}", hint=f"services: {', '.join(apis)}")
    module = importlib.import_module(f"trajkit.training.hosted.{target}.connect")
    service: Service = module.connect(settings)
    return service
