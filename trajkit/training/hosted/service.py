"""What a service must be able to do so that a job can be launched on it, and the words for what it answers.

`trajkit.training.hosted.launch` does everything that is the same for all of them: it looks for a job that is
there already, uploads once, creates once, polls, writes down events and fetches results. A service only says
things in its own API's words, and never waits, never prints and writes no file but the one it is told to.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Protocol, runtime_checkable

from pydantic import Field

from trajkit.errors import RequestError
from trajkit.formats.base import PreferenceFormat, SftFormat
from trajkit.schema import Model
from trajkit.schema.base import Count, JsonObject, Name, Text, UtcTime
from trajkit.training.job import JobStatus
from trajkit.training.step import Step

Sent = Callable[[int, int], None]
"""Is told how many bytes of a file are sent, and of how many."""

_PART = "[A-Za-z0-9_][A-Za-z0-9_.:@+=~-]*"
PLAIN = f"^{_PART}(/{_PART})*$"
"""What an id that a service gave must look like, as it becomes a part of addresses: no `..`, `?`, `#`."""
RemoteId = Annotated[Name, Field(pattern=PLAIN, max_length=500)]
"""An id that a service gave."""
LISTING_LAG_S = 60.0
"""So long a service may take to list a job that it has just created, where it does not say."""

MOST_EVENTS = 50_000
"""Events of a job that are kept; a training tells one or two for each step."""


class ModelFacts(Model):
    """What is known of a model before anything is sent."""

    model: Name
    """The model, as the service names it."""
    usd_per_million_tokens: float | None = Field(default=None, ge=0)
    """Price of a million trained tokens (each pass over the rows counts); None when it is not known."""
    least_usd: float | None = Field(default=None, ge=0)
    """What a job costs at the least; None when nothing is said."""
    price_as_of: date | None = None
    """When that price was true; None where the service itself said it just now."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Longest row; what is beyond is cut off or refused. None when nothing is said."""
    encoding: Name | None = None
    """Name of its tokenizer in tiktoken; None when that is not public."""
    last_job_on: date | None = None
    """Last day on which a job can be created; None when nothing is said."""
    shutdown_on: date | None = None
    """Day on which the model and all that was tuned from it end; None when nothing is said."""
    warnings: tuple[Text, ...] = ()
    """What else a user should know before paying, each a sentence without a stop."""


class Order(Model):
    """A job as it is asked for: all of it is known before it is created, and the same the next time."""

    mark: Name
    """Names the job at the service (64 hexadecimal digits): it is found again by it, and not made twice."""
    name: Name
    """What the user calls it: the name of its folder."""
    method: Name = "sft"
    """`sft` or `dpo`."""
    base: Name
    """The model to start from."""
    training_file: Name | None = None
    """What `Service.upload` gave for the rows; None before that."""
    validation_file: Name | None = None
    """The same for those that measure; None for none."""
    n_rows: Count
    """Rows of the training file."""
    recipe: JsonObject = {}
    """As `Service.resolved` gave it."""


class Checkpoint(Model):
    """A model on the way."""

    model: Name
    """Its name, under which it answers."""
    n_steps: int | None = None
    """Steps of the optimizer; None where nobody says."""
    loss: float | None = None
    """Of the rows that are learned."""
    eval_loss: float | None = None
    """The validation's."""


class State(Model):
    """How far a job is, as the service says."""

    remote_id: RemoteId
    """The service's id of the job."""
    status: JobStatus
    """In our words; a word of theirs that we do not know is RUNNING."""
    said: Text
    """In theirs, such as `validating_files` or `JOB_STATE_RUNNING`."""
    is_paused: bool = False
    """Whether somebody halted it, and `Service.resume` goes on with it."""
    error: Text | None = None
    """Why it failed, in the service's words."""
    error_code: Text | None = None
    """Its name for that."""
    model: Text | None = None
    """The tuned model, once there is one: the name under which it answers."""
    n_trained_tokens: int | None = None
    """Tokens that were paid for; None while nobody says."""
    cost_usd: float | None = None
    """What it cost; None where nobody says."""
    result_files: tuple[Name, ...] = ()
    """Ids of what it left, for `Service.fetch`."""
    estimated_end: UtcTime | None = None
    """When the service thinks that it ends."""
    facts: JsonObject = {}
    """What else is worth keeping (hyperparameters that were chosen, dashboard's address), never a key."""


class Event(Model):
    """What a service told of a job."""

    event_id: Name
    """Unique in the job, so that it is written down once."""
    at: UtcTime | None = None
    """When it happened."""
    level: Text = "info"
    """`info`, `warn`, `error`, or a word of theirs."""
    message: Text = ""
    """In the service's words."""
    step: Step | None = None
    """How far the training is, where the event says it."""


@runtime_checkable
class Service(Protocol):
    """One service, reached with one key.

    Every method that talks to it raises `ServiceError` with a way out in the hint when the service refuses.
    Where only the network or the service's own machines are at fault, so that trying again may help, it is
    `trajkit.training.hosted.answer.Unreachable`; where the environment has no key, `answer.MissingKey`.
    No key in any message.
    """

    target: str
    """What a user calls it: `openai`, `together`, `fireworks`."""
    rules: str
    """Whose rules the rows are checked by: a name in `trajkit.formats.validation.target.TARGETS`."""
    where: str
    """Where it is, for people: the address of its API."""
    methods: Sequence[str]
    """What it can do: `sft`, `dpo`."""
    has_pause: bool = False
    """Whether a running job can be halted and taken up again."""
    listing_lag_s: float | None = None
    """Seconds within which a new job is listed: until then `find` may miss it, and a second one would be paid
    for. None where the service itself refuses to make a job twice."""

    @property
    def settings(self) -> JsonObject:
        """What `connect` needs to reach the same service from another process: never a key."""

    def format(self, method: str) -> SftFormat | PreferenceFormat:
        """How the rows are written."""

    def resolved(self, method: str, given: JsonObject) -> JsonObject:
        """The recipe that is meant by these options, with the defaults that are ours to choose.

        Raises:
            RequestError: There is no such option, or it cannot have this value.
        """

    def epochs(self, recipe: JsonObject, n_rows: int) -> float | None:
        """How often each row is learned; None when the service decides and nobody knows how."""

    def known(self, model: str) -> ModelFacts:
        """What is known of a model without asking anybody."""

    def preflight(self, model: str) -> ModelFacts:
        """What is known of a model, asked before anything is sent.

        Raises:
            ServiceError: The key is wrong, there is no such model, or no job may be created.
        """

    def upload(self, path: Path, *, on_sent: Sent = lambda n_done, n_total: None) -> str:
        """Send a file of rows, in parts where it is large; its id."""

    def find(self, order: Order) -> State | None:
        """The newest job that this order made already and that did not end without a model; None for none.

        It is known by `Order.mark` where the service keeps such words, and by `Order.training_file`.
        """

    def create(self, order: Order) -> State:
        """Create the job: once, with no retry of any kind, because a second one is paid for too."""

    def status(self, remote_id: str) -> State:
        """How far it is."""

    def events(self, remote_id: str, known: Container[str] = ()) -> Sequence[Event]:
        """What it told of a job, the oldest first, but for the events whose ids are known."""

    def checkpoints(self, remote_id: str) -> Sequence[Checkpoint]:
        """Models on the way, the oldest first; empty where the service keeps none."""
        return ()

    def cancel(self, remote_id: str) -> State:
        """End it for good."""

    def pause(self, remote_id: str) -> State:
        """Halt it; only where `has_pause`."""
        raise RequestError(f"{self.target} cannot halt a job", hint="`trajkit jobs cancel` ends it for good")

    def resume(self, remote_id: str) -> State:
        """Go on after `pause`, or where the service itself halted the job."""
        raise RequestError(f"{self.target} cannot halt a job, so none is taken up again")

    def delete_file(self, file_id: str) -> None:
        """Remove an uploaded file; one that is gone already is no error."""

    def fetch(self, file_id: str, goal: Path) -> None:
        """Write a result file to `goal`; only where `State.result_files` names one."""
        raise RequestError(f"{self.target} has no result file {file_id!r}")
