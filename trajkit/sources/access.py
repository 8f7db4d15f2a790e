"""Limits of queries on a database server, and the certificates that are trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from trajkit.errors import ServiceError
from trajkit.schema import Model


class Access(Model):
    """Limits and trust for a server. They change no answer, so no store records them."""

    max_threads: Annotated[int, Field(ge=1)] | None = None
    """Maximum server threads per query; None for the server's default."""
    max_memory_bytes: Annotated[int, Field(ge=1)] | None = None
    """Maximum server memory per query, in bytes; None for the server's default."""
    max_seconds: Annotated[int, Field(ge=1)] | None = None
    """Maximum time of a query on the server, in seconds; None for no limit."""
    ca_certificate: Path | None = None
    """A file of certificates (PEM) whose signatures are trusted; None for those of the system."""


class LimitReached(ServiceError):
    """A query took more time, memory or rows than the server, or the user, allows."""
