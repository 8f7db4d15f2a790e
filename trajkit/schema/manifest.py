"""What a store says about itself: version, digest, counts, where it came from and what was left behind."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trajkit.schema.base import Count, JsonObject, Model, Name, Text, UtcTime
from trajkit.schema.feedback import FeedbackKind, MetricLevel

STORE_VERSION = 1
"""The version of the store's layout that this trajkit writes, and the newest that it reads."""

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""Hex sha256."""


class Metric(Model):
    """A metric that the store has a column for."""

    name: Name
    """Its name, which is the column's."""
    level: MetricLevel
    """Whether it is about episodes or about steps."""
    kind: FeedbackKind
    """`float` or `boolean`."""
    optimize: Annotated[str, Field(pattern="^(max|min)$")] | None = None
    """Whether more is better (`max`) or less (`min`); None when unknown."""


class Left(Model):
    """What a verb did not take along, for one reason."""

    reason: Name
    """Why, in words."""
    n_episodes: Count = 0
    """Episodes left behind whole."""
    n_steps: Count = 0
    """Steps left behind, or kept as context only."""


class LineageEntry(Model):
    """One verb on the way from the source to this store."""

    verb: Name
    """What was done, such as `export`."""
    arguments: JsonObject
    """With what options; never a secret."""
    parent_digest: Sha256 | None = None
    """Digest of the store it was done to; None when it was not a store."""
    n_episodes_in: Count
    """Episodes it saw."""
    n_episodes_out: Count
    """Episodes it kept."""
    n_steps_in: Count
    """Steps it saw."""
    n_steps_out: Count
    """Steps it kept, those kept as context included."""
    left: tuple[Left, ...] = ()
    """What left, by reason; the episodes add up to in - out."""
    masked: tuple[Left, ...] = ()
    """Steps that stayed as context and are not learned, by reason."""
    done_at: UtcTime
    """When."""
    trajkit_version: Name
    """By which version."""


class Part(Model):
    """One Parquet file."""

    path: Name
    """Relative to the store, with forward slashes."""
    sha256: Sha256
    """Of the file's bytes."""
    n_rows: Count
    """Rows in it."""
    n_bytes: Count
    """Its size."""


class Counts(Model):
    """How much a store holds."""

    n_episodes: Count
    """Rows of `episodes`."""
    n_steps: Count
    """Rows of `steps`."""
    n_feedback: Count
    """Rows of `feedback`."""


class Published(Model):
    """That a store was published."""

    repository: Name
    """Where, as `owner/name`."""
    endpoint: Name
    """Which Hub."""
    commit: Name
    """The commit that holds it."""
    tag: Name | None = None
    """The tag that was given to that commit."""
    digest: Sha256
    """Digest of the store."""
    is_private: bool
    """Whether the repository was private then."""
    published_at: UtcTime
    """When."""
    trajkit_version: Name
    """By which version."""


class Manifest(Model):
    """The file that makes a folder a store. It is written last."""

    format_version: Annotated[int, Field(ge=1)] = STORE_VERSION
    """Version of the layout."""
    kind: Name
    """What made it, such as `rollout` or `export`."""
    digest: Sha256
    """Digest of the content: the same for the same episodes, whatever the parts, threads or source."""
    counts: Counts
    """How much it holds."""
    metrics: tuple[Metric, ...] = ()
    """The metrics that have a column."""
    split: Text | None = None
    """Which side of a split it is; None when it is not one."""
    source: JsonObject = {}
    """Where it came from; never a password."""
    as_of: UtcTime | None = None
    """The newest moment the source was read at; None when the source does not change."""
    lineage: tuple[LineageEntry, ...] = ()
    """What was done, oldest first."""
    published: tuple[Published, ...] = ()
    """Where it was published, oldest first: all that is added to a manifest later."""
    parts: tuple[Part, ...] = ()
    """Every file of the store but this one."""
    created_at: UtcTime
    """When it was written."""
    trajkit_version: Name
    """By which version."""
