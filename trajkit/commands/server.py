"""What a query may take of a database's server, as options say it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trajkit.commands.place import Place
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.sources.access import Access


def access(
    max_threads: int | None,
    max_server_memory: int | None,
    ca_cert: Place | None,
    *,
    max_seconds: int | None = None,
) -> Access:
    """The options as one value."""
    from trajkit.sources.access import Access

    return Access(
        max_threads=max_threads,
        max_memory_bytes=max_server_memory,
        max_seconds=max_seconds,
        ca_certificate=None if ca_cert is None else Path(ca_cert),
    )


def refuse_server_options(access: Access, *, why: str) -> None:
    """Raise when one of the options was given where no server is asked.

    Raises:
        RequestError: One was.
    """
    spelled = {
        "max_threads": "--max-threads",
        "max_memory_bytes": "--max-server-memory",
        "max_seconds": "--timeout",
        "ca_certificate": "--ca-cert",
    }
    for name, option in spelled.items():
        if getattr(access, name) is not None:
            raise RequestError(f"{option} is for databases: {why}")
