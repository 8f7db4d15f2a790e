"""The manifest of a store: version, digest, counts, source and lineage."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trajkit.schema.base import Count, JsonObject, Model, Name, Text, UtcTime
from trajkit.schema.feedback import FeedbackKind, MetricLevel

STORE_VERSION = 1
"""The version of the store layout that trajkit writes, and the newest that it reads."""

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""A SHA-256 as 64 hexadecimal digits."""


class Metric(Model):
    """A metric that has a column in the store."""

    name: Name
    """Name of the metric and of its column."""
    level: MetricLevel
    """Whether the metric is about episodes or about steps."""
    kind: FeedbackKind
    """`float` or `boolean`."""
    optimize: Annotated[str, Field(pattern="^(max|min)$")] | None = None
    """`max` if larger values are better, `min` if smaller; None when unknown."""


class Left(Model):
    """Episodes and steps that a command left out, for one reason."""

    reason: Name
    """The reason."""
    n_episodes: Count = 0
    """Episodes that were left out."""
    n_steps: Count = 0
    """Steps that were left out, or kept as context only."""


class LineageEntry(Model):
    """One command between the source and this store."""

    verb: Name
    """Name of the command, such as `export`."""
    arguments: JsonObject
    """Options of the command under their own names, without secrets: a store is its digest, and a value that
    was not recorded, as it may be secret, is null. `result` holds findings besides the counts."""
    parent_digest: Sha256 | None = None
    """Digest of the input store; None when the input was not a store."""
    n_episodes_in: Count
    """Episodes in the input."""
    n_episodes_out: Count
    """Episodes in the output."""
    n_steps_in: Count
    """Steps in the input."""
    n_steps_out: Count
    """Steps in the output, including steps that are context only."""
    left: tuple[Left, ...] = ()
    """What was left out, by reason. The episodes add up to `n_episodes_in - n_episodes_out`."""
    masked: tuple[Left, ...] = ()
    """Steps that became context only, by reason."""
    done_at: UtcTime
    """Time of the command."""
    trajkit_version: Name
    """Version of trajkit."""

    @property
    def options(self) -> JsonObject:
        """The options alone."""
        return {name: value for name, value in self.arguments.items() if name != "result"}

    @property
    def result(self) -> JsonObject:
        """The findings; entries from before November 2026 have them among the options."""
        found = self.arguments.get("result")
        return found if isinstance(found, dict) else self.arguments


class Part(Model):
    """A Parquet file of the store."""

    path: Name
    """Path relative to the store, with forward slashes."""
    sha256: Sha256
    """SHA-256 of the file."""
    n_rows: Count
    """Number of rows."""
    n_bytes: Count
    """Size in bytes."""


class Counts(Model):
    """Numbers of rows in a store."""

    n_episodes: Count
    """Rows of `episodes`."""
    n_steps: Count
    """Rows of `steps`."""
    n_feedback: Count
    """Rows of `feedback`."""


class Published(Model):
    """A publication of a store."""

    repository: Name
    """Repository, as `owner/name`."""
    endpoint: Name
    """URL of the Hub."""
    commit: Name
    """Commit that contains the store."""
    tag: Name | None = None
    """Tag of the commit; None when it has none."""
    digest: Sha256
    """Digest of the store."""
    is_private: bool
    """Whether the repository was private at that time."""
    published_at: UtcTime
    """Time of the publication."""
    trajkit_version: Name
    """Version of trajkit."""


class Manifest(Model):
    """The file `manifest.json`, which makes a folder a store. It is written last."""

    format_version: Annotated[int, Field(ge=1)] = STORE_VERSION
    """Version of the store layout."""
    kind: Name
    """Command that created the first store, such as `rollout` or `export`."""
    digest: Sha256
    """Digest of the content. The same episodes have the same digest, whatever the parts and source."""
    counts: Counts
    """Numbers of rows."""
    metrics: tuple[Metric, ...] = ()
    """Metrics that have a column."""
    split: Text | None = None
    """Side of a split, such as `train`; None when the store is not part of a split."""
    source: JsonObject = {}
    """Description of the source, without passwords."""
    as_of: UtcTime | None = None
    """Time at which the source was read; None when the source does not change."""
    lineage: tuple[LineageEntry, ...] = ()
    """Commands that led to this store, oldest first."""
    published: tuple[Published, ...] = ()
    """Publications, oldest first. Only this field is added to a manifest later."""
    parts: tuple[Part, ...] = ()
    """All files of the store except the manifest."""
    created_at: UtcTime
    """Time at which the store was written."""
    trajkit_version: Name
    """Version of trajkit."""
