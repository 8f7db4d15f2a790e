"""The state of a job at a service: `TuneJob.remote`, with types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from pydantic import Field

from trajkit.schema import Model
from trajkit.schema.base import Count, JsonObject, Name, Text, UtcTime
from trajkit.training.hosted.service import Checkpoint, Order, State
from trajkit.training.job import TuneJob


class Estimate(Model):
    """The estimate of a job, which the user agreed to."""

    n_epochs: float | None = None
    """Passes over the rows; None if the service decides."""
    n_trained_tokens: Count | None = None
    """Paid tokens; None when the number of epochs is unknown."""
    is_exact: bool = False
    """Whether the count equals the service's own."""
    counted_by: Text = ""
    """Name of the tokenizer."""
    usd_per_million_tokens: float | None = Field(default=None, ge=0)
    """Price at that time."""
    cost_usd: float | None = Field(default=None, ge=0)
    """Expected cost; None when the price or the number of tokens is unknown."""


class Remote(Model):
    """The state of a job at a service, saved before and after each step that must not happen twice."""

    where: Text
    """Address of the service's API."""
    settings: JsonObject = {}
    """Settings to connect again, without a key."""
    estimate: Estimate = Estimate()
    """The estimate."""
    is_agreed: bool = False
    """Whether the user agreed to the plan."""
    is_asked_for: bool = False
    """Whether the job was requested and the answer is not recorded: look for it before another request."""
    asked_at: UtcTime | None = None
    """Time of the request."""
    training_file: Name | None = None
    """Id of the uploaded training rows; None before the upload and after their removal."""
    validation_file: Name | None = None
    """Id of the uploaded validation rows."""
    state: State | None = None
    """The service's last state; None before the job exists."""
    checkpoints: tuple[Checkpoint, ...] = ()
    """Checkpoints of the job."""
    fetched: tuple[Name, ...] = ()
    """Result files that are in the job's folder."""

    @classmethod
    def of(cls, job: TuneJob) -> Self:
        """Return the state in a job's record."""
        return cls.model_validate(job.remote)

    def put_into(self, job: TuneJob, **update: object) -> TuneJob:
        """Return the job with this state, and with other fields changed."""
        return job.model_copy(update={"remote": self.model_dump(mode="json"), **update})

    @property
    def files(self) -> tuple[str, ...]:
        """Ids of the uploaded files that still exist."""
        return tuple(file for file in (self.training_file, self.validation_file) if file is not None)

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the facts for display, by name."""
        yield "service", self.where
        if self.state is not None:
            halted = ", halted" if self.state.is_paused else ""
            yield "remote job", f"{self.state.remote_id} ({self.state.said}{halted})"
            if self.state.estimated_end is not None:
                yield "expected end", f"{self.state.estimated_end:%Y-%m-%d %H:%M} UTC"
        for file in self.files:
            yield "uploaded file", file
        if self.estimate.cost_usd is not None:
            yield "expected cost", f"{self.estimate.cost_usd:,.2f} USD"
        for checkpoint in self.checkpoints:
            at = "" if checkpoint.n_steps is None else f" at step {checkpoint.n_steps}"
            measured = "" if checkpoint.eval_loss is None else f", validation {checkpoint.eval_loss:.3f}"
            yield "checkpoint", f"{checkpoint.model}{at}{measured}"
        for name in self.fetched:
            yield "result file", name


def order_of(job: TuneJob, remote: Remote) -> Order:
    """Return the service's order of a job."""
    return Order(
        mark=job.key,
        name=job.job_id,
        method=job.method,
        base=job.base,
        training_file=remote.training_file,
        validation_file=remote.validation_file,
        n_rows=job.learned.n_rows,
        recipe={name: value for name, value in job.recipe.items() if name not in NOT_THE_SERVICES},
    )


NOT_THE_SERVICES = ("rows", "allow_leak")
"""Settings of the rows, which the service does not get."""
