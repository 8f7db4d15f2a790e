"""What an export is asked for, and the account of what it left behind."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Self

from pydantic import Field, model_validator

import trajkit
from trajkit.errors import QueryError
from trajkit.schema import Left, LineageEntry, Model
from trajkit.schema.base import Name, Text, UtcTime
from trajkit.schema.success import finite_number


class MetricCondition(Model):
    """A metric must be measured, and within its bounds when it has any.

    Bounds are compared in single precision, because TensorZero keeps float metrics so: a stored 0.7 passes
    `min=0.7`.
    """

    name: Name
    """The metric."""
    min: float | None = None
    """Smallest value that passes; None for no lower bound."""
    max: float | None = None
    """Largest value that passes; None for no upper bound."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(
                f"--min {self.min:g} is above --max {self.max:g}: no value of {self.name} can pass"
            )
        return self

    @property
    def words(self) -> str:
        """The condition as a person reads it, such as `episode_return >= 0.7`."""
        parts = []
        if self.min is not None:
            parts.append(f"{self.name} >= {self.min:g}")
        if self.max is not None:
            parts.append(f"{self.name} <= {self.max:g}")
        return " and ".join(parts) or f"{self.name} is measured"


class ExportRequest(Model):
    """Which episodes to bring, and how to read them."""

    functions: tuple[Name, ...] = ()
    """Functions whose steps are learned; empty for every function but `tensorzero::*`."""
    variants: tuple[Name, ...] = ()
    """Variants whose steps are learned; empty for all."""
    metrics: tuple[MetricCondition, ...] = ()
    """Conditions that must all hold: on episodes for an episode metric, on steps for an inference metric."""
    tags: Annotated[dict[Name, Text], Field(max_length=64)] = {}
    """Tags that the episode must carry on any of its inferences; at most 64 (they travel as bits)."""
    since: UtcTime | None = None
    """Earliest start of an episode, inclusive."""
    until: UtcTime | None = None
    """Latest start of an episode, exclusive."""
    include_eval: bool = False
    """Bring evaluation episodes too."""
    include_abandoned: bool = False
    """Bring episodes too that a rollout marked as abandoned: half-played, or spoiled by a service."""
    include_invalid: bool = False
    """Let answers that do not parse be training targets."""
    success: Text | None = None
    """When an episode is a success; None for `success` or `progression >= 1`, whichever is measured."""
    observation_path: Annotated[Text, Field(min_length=1)] = "observation"
    """Template argument of the last user message that holds the observation; dots go into objects."""
    action_path: Annotated[Text, Field(min_length=1)] = "action"
    """Field of the parsed output that holds the action; dots go into objects."""

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        if self.since and self.until and self.since >= self.until:
            raise ValueError(
                f"--since {self.since.isoformat()} is not before --until {self.until.isoformat()}"
            )
        return self


class Tally(Model):
    """What was seen, what was kept, and why the rest left."""

    n_episodes_seen: int
    """Episodes at the source."""
    n_episodes_kept: int
    """Episodes in the store."""
    n_steps_seen: int
    """Steps at the source."""
    n_steps_kept: int
    """Steps in the store, those that are only context included."""
    left: tuple[Left, ...] = ()
    """What left, each episode under the first reason that applies."""
    masked: tuple[Left, ...] = ()
    """Steps in the store that are not learned, by reason."""


def lineage_entry(request: ExportRequest, tally: Tally, *, parent_digest: str | None = None) -> LineageEntry:
    """What the manifest says of an export.

    Args:
        request: What was asked for.
        tally: What came of it.
        parent_digest: Digest of the store that was read; None when it was a database.
    """
    return LineageEntry(
        verb="export",
        arguments=request.model_dump(mode="json", exclude_defaults=True),
        parent_digest=parent_digest,
        n_episodes_in=tally.n_episodes_seen,
        n_episodes_out=tally.n_episodes_kept,
        n_steps_in=tally.n_steps_seen,
        n_steps_out=tally.n_steps_kept,
        left=tally.left,
        masked=tally.masked,
        done_at=datetime.now(UTC),
        trajkit_version=trajkit.__version__,
    )


def parse_bound(text: str, *, option: str) -> float:
    """Read the bound of a metric: a finite number, or `true` or `false` for a boolean metric.

    Raises:
        QueryError: It is neither.
    """
    value = finite_number(text)
    if value is None:
        raise QueryError(f"{option} {text!r} is not a finite number", hint=f"such as {option} 0.7")
    return value


def parse_time(text: str, *, option: str) -> datetime:
    """Read an ISO date or date and time; without an offset it is UTC.

    Raises:
        QueryError: It is neither.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise QueryError(
            f"{option} {text!r} is not a date or a time",
            hint=f"such as {option} 2026-11-21 or {option} 2026-11-21T12:00Z",
        ) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
