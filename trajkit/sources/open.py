"""Choose the source: the given one, else the folder's `trajkit.toml`, the environment, or the local stack."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import SecretStr

from trajkit._core.address import is_address, place_of
from trajkit._core.settings import Project, checked_secret, secret_from_environment
from trajkit.errors import RequestError
from trajkit.schema import Manifest
from trajkit.sources.access import Access
from trajkit.sources.request import ExportRequest, Tally
from trajkit.stack.state import local_stack

if TYPE_CHECKING:
    from trajkit.sources.tensorzero.connect.database import TensorZero
    from trajkit.sources.tensorzero.look.models import DatabaseLook

CLICKHOUSE_VARIABLE = "TENSORZERO_CLICKHOUSE_URL"
"""The environment variable that TensorZero itself reads."""

POSTGRES_VARIABLE = "TENSORZERO_POSTGRES_URL"
"""The variable for Postgres: like TensorZero, use ClickHouse if both are set."""


class Location(NamedTuple):
    """A source, and where it was named. A URL may contain a password: it is a secret."""

    value: SecretStr
    named_by: str
    is_database: bool

    @property
    def is_tensorzero(self) -> bool:
        """Whether it is a TensorZero database or an archive of one; else it is a store."""
        if self.is_database:
            return True
        from trajkit.sources.tensorzero.archive.manifest import is_archive

        return is_archive(place_of(self.value.get_secret_value()))


def find_source(source: str | None, project: Project) -> Location:
    """Choose the source to read.

    Args:
        source: A database URL or the path of a store; None to look further.
        project: The working folder's defaults.

    Raises:
        RequestError: Nothing names a source.
    """
    if source is not None:
        return _location(source, "--source")
    if project.source is not None:
        return _location(project.source, "trajkit.toml")
    for variable in (CLICKHOUSE_VARIABLE, POSTGRES_VARIABLE):
        if (url := secret_from_environment(variable)) is not None:
            return Location(url, variable, True)
    if (stack := local_stack()) is not None:
        return Location(stack.clickhouse_url, "the local stack", True)
    raise RequestError(
        "no source to export from",
        hint=f"start a local one with `trajkit up`, set {CLICKHOUSE_VARIABLE} or {POSTGRES_VARIABLE},"
        " or pass --source",
    )


def _location(text: str, named_by: str) -> Location:
    is_database = "://" in text and not is_address(text)
    if not is_database:
        place_of(text)  # refuses an address with a password before it is shown
    secret = checked_secret(text, named_by) if is_database else None
    return Location(secret or SecretStr(text), named_by, is_database)


def shown(location: Location) -> str:
    """Return its address without credentials.

    Raises:
        RequestError: It is not the URL of a database.
    """
    from trajkit.sources.tensorzero.connect.url import parse_url

    value = location.value.get_secret_value()
    return parse_url(value).shown if location.is_database else value


def open_source(
    location: Location,
    access: Access = Access(),  # noqa: B008 -- frozen
    *,
    patience_s: int | None = None,
) -> TensorZero:
    """Open a TensorZero database, or an archive of one. It must be closed.

    Args:
        location: Where it is.
        access: Limits of queries on a database's server.
        patience_s: Longest time of a query on a server in seconds, where `access` sets none and the user may.

    Raises:
        RequestError: It is not the URL of a database.
        ServiceError: It cannot be reached, or refuses the user.
        MissingExtra: Its driver is not installed.
        StoreError: The archive is damaged.
    """
    value = location.value.get_secret_value()
    if location.is_database:
        from trajkit.sources.tensorzero.connect.database import open_database

        return open_database(value, access, patience_s=patience_s)
    from trajkit.sources.tensorzero.archive.dialect import open_archive

    return open_archive(place_of(value))


def export_from(
    location: Location,
    request: ExportRequest,
    goal: Path | None,
    *,
    on_progress: Callable[[str, int, int | None], None],
    access: Access = Access(),  # noqa: B008 -- frozen
) -> tuple[Tally, Manifest | None]:
    """Export from a database, from an archive of one, or from a store.

    Args:
        location: Where to read.
        request: Which episodes.
        goal: The store to write; None to count only.
        on_progress: Called with the current action, the rows or parts done, and their total (None when
            unknown).
        access: Limits of queries on a database's server.

    Returns:
        The tally, and the manifest of the store (None when there is no goal).
    """
    if not location.is_tensorzero:
        from trajkit.sources.local import export_store

        return export_store(place_of(location.value.get_secret_value()), request, goal)
    from trajkit.sources.tensorzero.export.export import export

    with contextlib.closing(open_source(location, access)) as database:
        return export(database, request, goal, on_progress=on_progress)


def look_at(location: Location, access: Access = Access()) -> DatabaseLook:  # noqa: B008 -- frozen
    """Describe a database, or an archive of one; a database counts itself, and is only read.

    Args:
        location: Where it is.
        access: Limits of queries on its server.

    Raises:
        ServiceError: The database cannot be reached, or is not TensorZero's.
        StoreError: The archive is damaged.
    """
    from trajkit.sources.tensorzero.look.look import look
    from trajkit.sources.tensorzero.look.queries import PATIENCE_S

    with contextlib.closing(open_source(location, access, patience_s=PATIENCE_S)) as database:
        return look(database)
