"""What the record of a job says of its life at a service: `TuneJob.remote`, with types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from pydantic import Field

from trajkit.schema import Model
from trajkit.schema.base import Count, JsonObject, Name, Text, UtcTime
from trajkit.training.hosted.service import Checkpoint, Order, State
from trajkit.training.job import TuneJob


class Estimate(Model):
    """What a job was expected to take before it was agreed to."""

    n_epochs: float | None = None
    """How often each row is learned; None where the service decides."""
    n_trained_tokens: Count | None = None
    """Tokens that are paid for; None with unknown epochs."""
    is_exact: bool = False
    """Whether the tokens are the service's own count."""
    counted_by: Text = ""
    """The tokenizer."""
    usd_per_million_tokens: float | None = Field(default=None, ge=0)
    """The price that was known."""
    cost_usd: float | None = Field(default=None, ge=0)
    """What they cost; None when no price or no number of tokens is known."""


class Remote(Model):
    """A job's life at a service. Saved before and after each step that cannot be taken twice."""

    where: Text
    """The address of the service's API."""
    settings: JsonObject = {}
    """How to reach it again; never a key."""
    estimate: Estimate = Estimate()
    """What was expected."""
    is_agreed: bool = False
    """Whether somebody said yes to the plan."""
    is_asked_for: bool = False
    """Whether the job was asked for and the answer not written down: look for it before asking again."""
    asked_at: UtcTime | None = None
    """When it was asked for."""
    training_file: Name | None = None
    """The uploaded rows; None before, and after they were removed."""
    validation_file: Name | None = None
    """The same for those that measure."""
    state: State | None = None
    """What the service said last; None before there is a job."""
    checkpoints: tuple[Checkpoint, ...] = ()
    """Models on the way."""
    fetched: tuple[Name, ...] = ()
    """Result files that are in the job's folder."""

    @classmethod
    def of(cls, job: TuneJob) -> Self:
        """That of a job."""
        return cls.model_validate(job.remote)

    def put_into(self, job: TuneJob, **update: object) -> TuneJob:
        """The job with this as its remote life, and with other fields changed."""
        return job.model_copy(update={"remote": self.model_dump(mode="json"), **update})

    @property
    def files(self) -> tuple[str, ...]:
        """Ids of what was uploaded and is there still."""
        return tuple(file for file in (self.training_file, self.validation_file) if file is not None)

    def lines(self) -> Iterator[tuple[str, str]]:
        """What a person wants to know of it, by name."""
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
    """What is asked of the service for a job."""
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
"""What a recipe says about the rows, and the service need not know."""
