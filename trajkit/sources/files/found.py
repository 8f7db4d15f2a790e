"""The results of reading a file: documents, problems, and documents set aside, each with its place."""

from __future__ import annotations

from typing import NamedTuple

from trajkit.formats.base import Problem
from trajkit.formats.reading.atif_rows import Rows
from trajkit.formats.reading.document import Reading

MOST_BYTES = 100_000_000
"""The largest document to read, because it is in memory as a whole: a file, a line, or a zip member."""


class Found(NamedTuple):
    """One document, or a problem in its place."""

    place: str
    """Where it is, such as `a.jsonl:12`."""
    reading: Reading | Rows | None = None
    """Its episodes, or the rows of its only episode; None if there are none."""
    key: bytes = b""
    """Bytes that are hashed to an id if the document has none."""
    problem: Problem | None = None
    """Why it cannot be read."""
    aside: str | None = None
    """Why it is left out although it can be read, as one of a few texts."""
    missing: tuple[str, ...] = ()
    """Facts that its source does not have, each as one of a few texts."""


class Unread(NamedTuple):
    """A file that no format reads."""

    suffix: str
    """Its suffix; empty when it has none."""
