"""The request of an import."""

from __future__ import annotations

from trajkit.schema import Model, Purpose
from trajkit.schema.base import Name, Text, UtcTime


class Wish(Model):
    """Options for reading records."""

    format: str | None = None
    """The format or source; None to recognise it."""
    skip_bad: bool = False
    """Leave out and count unreadable documents, instead of failing."""
    include_errored: bool = False
    """Also take trials and samples that ended in an error."""
    success: str | None = None
    """When an episode is a success, such as `reward >= 0.5`; None for the format's own."""
    purpose: Purpose | None = None
    """The purpose of the episodes; None for that of the documents."""
    metrics: dict[Name, Text] = {}
    """Metrics of the episodes: names to places in the documents, such as `columns.reward`."""
    tags: dict[Name, Text] = {}
    """Tags of the episodes: names to places in the documents, such as `columns.customer`."""
    task: Text | None = None
    """The place of the task in a document, such as `columns.task`; None for the format's own."""
    since: UtcTime | None = None
    """Leave out episodes whose last answer is before this time."""
    until: UtcTime | None = None
    """Leave out episodes that start at this time or later."""
