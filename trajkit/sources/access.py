"""How a database is used: what a query may take of its server, and which certificates are trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from trajkit.errors import ServiceError
from trajkit.schema import Model


class Access(Model):
    """What is asked of a server besides an answer; it changes no answer, so no store tells of it."""

    max_threads: Annotated[int, Field(ge=1)] | None = None
    """Most threads that a query may use on the server; None for what the server gives."""
    max_memory_bytes: Annotated[int, Field(ge=1)] | None = None
    """Most memory that a query may use on the server, in bytes; None for what the server gives."""
    max_seconds: Annotated[int, Field(ge=1)] | None = None
    """Longest that a query may run on the server, in seconds; None for as long as it takes."""
    ca_certificate: Path | None = None
    """A file of certificates (PEM) whose signatures are trusted; None for those of the system."""


class LimitReached(ServiceError):
    """A query took more time, memory or rows than the server, or the user, allows."""
