"""The request of an export, and the tally of what it left out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

import trajkit
from trajkit._core.times import utc_of
from trajkit.errors import QueryError
from trajkit.schema import Left, LineageEntry, Model
from trajkit.schema.base import JsonObject, Name, Text, UtcTime
from trajkit.schema.manifest import Sha256
from trajkit.schema.success import finite_number


class MetricCondition(Model):
    """A condition: a metric must be measured, and within the bounds if there are any.

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
        """Return the condition as text, such as `episode_return >= 0.7`."""
        parts = []
        if self.min is not None:
            parts.append(f"{self.name} >= {self.min:g}")
        if self.max is not None:
            parts.append(f"{self.name} <= {self.max:g}")
        return " and ".join(parts) or f"{self.name} is measured"


class Targets(StrEnum):
    """What a step's completion is."""

    ANSWER = "answer"
    """The model's answer."""
    DEMONSTRATION = "demonstration"
    """The demonstration of a step, if it has one; the model's answer is kept beside it."""


class Shard(Model):
    """One of several parts of an export; an episode belongs to the same part on every source."""

    number: Annotated[int, Field(ge=1)]
    """Which part, from 1."""
    n: Annotated[int, Field(ge=1, le=4096)]
    """How many parts there are."""

    @model_validator(mode="after")
    def _check_number(self) -> Self:
        if self.number > self.n:
            raise ValueError(f"--shard {self.number}/{self.n}: there are only {self.n} shards, from 1")
        return self


class Earlier(Model):
    """The earlier store of `--after`."""

    path: Annotated[Path, Field(exclude=True)]
    """Where it is; the new store does not record it."""
    digest: Sha256
    """Its digest."""
    as_of: UtcTime
    """The time until which its source was read."""


_OPTIONS = {
    "functions": "function",
    "train_functions": "train_function",
    "variants": "variant",
    "metrics": "metric",
    "tags": "tag",
    "template_config": "config",
}
"""The options of `export` whose fields have other names."""


class ExportRequest(Model):
    """Which episodes to export, and how to read them."""

    functions: tuple[Name, ...] = ()
    """Functions whose steps are trained on; empty for every function except `tensorzero::*`."""
    train_functions: tuple[Name, ...] = ()
    """Of the exported steps, train only on those of these functions; empty for all."""
    variants: tuple[Name, ...] = ()
    """Variants whose steps are trained on; empty for all."""
    metrics: tuple[MetricCondition, ...] = ()
    """Conditions that must all hold: on episodes for an episode metric, on steps for an inference metric."""
    tags: Annotated[dict[Name, Text], Field(max_length=64)] = {}
    """Tags that the episode must carry on any of its inferences; at most 64 (they travel as bits)."""
    where: Text | None = None
    """A condition on episodes, or on single steps, in the language of `select`; None for none."""
    order_by: Text | None = None
    """The order of episodes for `limit`, such as `n_steps desc`; None for the oldest first."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of exported episodes; None for all."""
    last_inference_only: bool = False
    """Train only on the last step of an episode."""
    targets: Targets = Targets.ANSWER
    """What a step's completion is."""
    template_variant: Name | None = None
    """Render prompts with this variant's templates; None for the prompts as they were sent."""
    template_config: Text | None = None
    """A `tensorzero.toml` with these templates; None for the configurations in the database."""
    shard: Shard | None = None
    """Export only this part of the episodes; None for all."""
    after: Earlier | None = None
    """Export only new episodes, and those with new steps or feedback, since this store; None for all."""
    as_of: UtcTime | None = None
    """Only what was logged until then, inclusive, in milliseconds; None for now."""
    since: UtcTime | None = None
    """Earliest start of an episode, inclusive."""
    until: UtcTime | None = None
    """Latest start of an episode, exclusive."""
    include_eval: bool = False
    """Also export evaluation episodes."""
    include_abandoned: bool = False
    """Also export episodes that a rollout marked as abandoned: half-played, or spoiled by a service."""
    include_invalid: bool = False
    """Let answers that do not parse be training targets."""
    max_bad: Annotated[int, Field(ge=0)] = 0
    """Maximum number of rows that are not UTF-8 or not JSON. They stay as steps that are not trained on."""
    success: Text | None = None
    """When an episode is a success; None for `success`, or without that metric `progression >= 1`."""
    observation_path: Annotated[Text, Field(min_length=1)] = "observation"
    """Template argument of the last user message that holds the observation; dots go into objects."""
    action_path: Annotated[Text, Field(min_length=1)] = "action"
    """Field of the parsed output that holds the action; dots go into objects."""

    def options(self) -> JsonObject:
        """Return the options of `export` that are not defaults, for a lineage."""
        told: JsonObject = self.model_dump(mode="json", exclude_defaults=True)
        if self.metrics:
            told["metrics"] = {each.name: [each.min, each.max] for each in self.metrics}
        if self.shard is not None:
            told["shard"] = f"{self.shard.number}/{self.shard.n}"
        return {_OPTIONS.get(name, name): value for name, value in told.items()}

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.limit is not None and self.shard is not None:
            raise ValueError("--limit counts over all episodes, and --shard sees only its own: leave one out")
        if self.since and self.until and self.since >= self.until:
            raise ValueError(
                f"--since {self.since.isoformat()} is not before --until {self.until.isoformat()}"
            )
        if self.order_by is not None and self.limit is None:
            raise ValueError("--order-by chooses the episodes of --limit, which is not given")
        if self.template_config is not None and self.template_variant is None:
            raise ValueError("--config names the templates: it needs --template-variant")
        return self


class Since(Model):
    """The comparison of an export with an earlier store."""

    n_episodes_new: int
    """Kept episodes that the earlier store does not have."""
    n_episodes_again: int
    """Kept episodes that it has, with new steps or new feedback."""
    n_episodes_refused: int
    """Its episodes that are now left out, for one of the reasons of the tally."""


class Tally(Model):
    """The counts of what was seen and kept, and why the rest was left out."""

    n_episodes_seen: int
    """Episodes at the source."""
    n_episodes_kept: int
    """Episodes in the store."""
    n_steps_seen: int
    """Steps at the source."""
    n_steps_kept: int
    """Steps in the store, those that are only context included."""
    left: tuple[Left, ...] = ()
    """Episodes left out, each under the first reason that applies."""
    masked: tuple[Left, ...] = ()
    """Steps in the store that are not trained on, by reason."""
    n_unreadable: int = 0
    """Rows that could not be read, at most as many as `max_bad` allows."""
    since: Since | None = None
    """How the kept episodes differ from the earlier store; None without one."""


def lineage_entry(request: ExportRequest, tally: Tally, *, parent_digest: str | None = None) -> LineageEntry:
    """Return the entry of an export in the manifest.

    Args:
        request: The request.
        tally: Its result.
        parent_digest: Digest of the store that was read; None when it was a database.
    """
    return LineageEntry(
        verb="export",
        arguments=request.options(),
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
        return utc_of(text)
    except ValueError:
        raise QueryError(
            f"{option} {text!r} is not a date or a time",
            hint=f"such as {option} 2026-11-21 or {option} 2026-11-21T12:00Z",
        ) from None


def parse_shard(text: str) -> Shard:
    """Read a part of an export, such as `3/16`.

    Raises:
        QueryError: It is not I/N with I from 1 to N.
    """
    number, slash, n = text.partition("/")
    if not (slash and number.isdecimal() and n.isdecimal() and 1 <= int(number) <= int(n)):
        raise QueryError(f"--shard {text!r} is not a shard", hint="write I/N, I from 1 to N, such as 3/16")
    return Shard(number=int(number), n=int(n))


def refuse_unknown(what: str, asked: Iterable[str], known: Collection[str], where: str) -> None:
    """Raise unless all requested functions, variants or metrics exist.

    Raises:
        QueryError: One does not; the hint lists those that do.
    """
    for name in asked:
        if name not in known:
            raise QueryError(
                f"no {what} {name!r} in this {where}",
                hint=f"known: {', '.join(sorted(known)) or 'none'}",
            )
