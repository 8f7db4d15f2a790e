"""Limits of a query on a database's server, from options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from trajkit.commands.options.types import File, ServerMemory
from trajkit.commands.place import path_or_none
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.sources.access import Access

_BYTES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]?)B?", re.IGNORECASE)
_LEAST_BYTES = 10**7
"""ClickHouse needs some megabytes for any query: less would be a wrong unit."""


def access(
    max_threads: int | None,
    max_server_memory: ServerMemory,
    ca_cert: File,
    *,
    max_seconds: int | None = None,
) -> Access:
    """The options as one value.

    Raises:
        RequestError: The memory is not a size, or there is no file of certificates.
    """
    from trajkit.sources.access import Access

    if ca_cert is not None and not Path(ca_cert).is_file():
        raise RequestError(f"--ca-cert: the file '{ca_cert}' does not exist")
    return Access(
        max_threads=max_threads,
        max_memory_bytes=n_bytes_of(max_server_memory),
        max_seconds=max_seconds,
        ca_certificate=path_or_none(ca_cert),
    )


def n_bytes_of(text: ServerMemory) -> int | None:
    """Read a number of bytes: `2GB`, `500 MB` or plain digits (powers of 1000).

    Raises:
        RequestError: It is not a size, or too small for any query.
    """
    if not isinstance(text, str):
        return text
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise RequestError(f"--max-server-memory {text!r} is not a size", hint="such as 2GB or 500MB")
    n_bytes = round(float(found[1]) * _BYTES[found[2].upper()])
    if n_bytes < _LEAST_BYTES:
        raise RequestError(f"--max-server-memory {text!r} is less than 10MB", hint="no query runs in less")
    return n_bytes


def refuse_server_options(access: Access, *, why: str) -> None:
    """Raise if one of the options was given and no server is queried.

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
