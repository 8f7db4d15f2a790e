"""What a file gives: readings, and what is wrong or set aside, each with its place."""

from __future__ import annotations

from typing import NamedTuple

from trajkit.formats.base import Problem
from trajkit.formats.reading.atif_rows import Rows
from trajkit.formats.reading.document import Reading

MOST_BYTES = 100_000_000
"""The largest document that is read, as it is in memory whole: a file, a line, or what a zip file holds."""


class Found(NamedTuple):
    """One document, or what stands for one."""

    place: str
    """Where it is, such as `a.jsonl:12`."""
    reading: Reading | Rows | None = None
    """Its episodes, or the rows of the one that it is; None where there are none."""
    key: bytes = b""
    """What is hashed to an id where the document has none of its own."""
    problem: Problem | None = None
    """Why it cannot be read."""
    aside: str | None = None
    """Why it is left out although it can be read, in words of which there are few."""
    missing: tuple[str, ...] = ()
    """What its source could not tell about it, in words of which there are few."""


class Unread(NamedTuple):
    """A file that no format looks at."""

    suffix: str
    """Its suffix; empty when it has none."""
