"""Copy a TensorZero database into a folder that needs none, and prove the copy."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from trajkit._core.settings import project
from trajkit.commands.place import Place
from trajkit.commands.server import access
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.sources.tensorzero.archive.copying import Archived
    from trajkit.sources.tensorzero.archive.origin import Origin
    from trajkit.sources.tensorzero.archive.verify import Verification


def archive(
    *,
    source: str | None = None,
    output: Place | None = None,
    moved: bool = False,
    max_threads: int | None = None,
    max_server_memory: int | None = None,
    ca_cert: Place | None = None,
) -> Archived:
    """Copy a TensorZero database into a folder that needs none; again, it brings what is new.

    Args:
        source: The database's URL; None for what trajkit.toml, the environment or the local stack names.
        output: The archive's folder; needed.
        moved: It is the archive's database, at another address.
        max_threads: Most threads of the server for a query.
        max_server_memory: Most memory of the server for a query, in bytes.
        ca_cert: Trust the certificates that these (PEM) have signed.

    Raises:
        RequestError: No folder is named, or nothing names a database.
        ServiceError: The database cannot be reached.
        StoreError: The folder is something else, or damaged.
    """
    if output is None:
        raise RequestError("no folder for the archive", hint="-o archive")
    from trajkit.sources.tensorzero.archive.copying import archive as bring

    with contextlib.closing(_connect(source, max_threads, max_server_memory, ca_cert)) as origin:
        return bring(origin, Path(output), is_moved=moved, on_progress=lambda what, n_done, n_total: None)


def archive_verify(
    folder: Place,
    *,
    source: str | None = None,
    moved: bool = False,
    max_threads: int | None = None,
    max_server_memory: int | None = None,
    ca_cert: Place | None = None,
) -> Verification:
    """Prove that an archive has all that its database has; what is missing is told, not raised.

    Args:
        folder: The archive.
        source: As in `archive`.
        moved: As in `archive`.
        max_threads: As in `archive`.
        max_server_memory: As in `archive`.
        ca_cert: As in `archive`.

    Raises:
        ServiceError: The database cannot be reached.
        StoreError: The folder is no archive, or a file differs from its checksum.
    """
    from trajkit.sources.tensorzero.archive.manifest import read_manifest
    from trajkit.sources.tensorzero.archive.verify import verify

    read_manifest(Path(folder))  # a folder that is none needs no database to say so
    with contextlib.closing(_connect(source, max_threads, max_server_memory, ca_cert)) as origin:
        return verify(origin, Path(folder), is_moved=moved, on_progress=lambda what, n_done, n_total: None)


def _connect(
    source: str | None, max_threads: int | None, max_server_memory: int | None, ca_cert: Place | None
) -> Origin:
    from trajkit.sources.open import find_source
    from trajkit.sources.tensorzero.archive.connecting import connected

    return connected(find_source(source, project()), access(max_threads, max_server_memory, ca_cert))
