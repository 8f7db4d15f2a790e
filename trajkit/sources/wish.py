"""What a user wants of an import."""

from __future__ import annotations

from trajkit.schema import Model, Purpose
from trajkit.schema.base import Name, Text, UtcTime


class Wish(Model):
    """How records are read, where it is not as they are."""

    format: str | None = None
    """The format or source that they are of; None to look."""
    skip_bad: bool = False
    """Leave out what cannot be read, and count it, instead of failing."""
    include_errored: bool = False
    """Take trials and samples that ended in an error, too."""
    success: str | None = None
    """When an episode is a success, such as `reward >= 0.5`; None for what the format says."""
    purpose: Purpose | None = None
    """What the episodes were played for; None for what the documents say."""
    metrics: dict[Name, Text] = {}
    """Metrics of the episodes: names to places in the documents, such as `columns.reward`."""
    tags: dict[Name, Text] = {}
    """Tags of the episodes: names to places in the documents, such as `columns.customer`."""
    task: Text | None = None
    """Where a document says its task, such as `columns.task`; None for what the format says."""
    since: UtcTime | None = None
    """Leave out episodes whose last answer is before this time."""
    until: UtcTime | None = None
    """Leave out episodes that start at this time or later."""
