"""Where to read: what was said, else the folder's `trajkit.toml`, the environment, the local stack."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import SecretStr

from trajkit._core.settings import Project, checked_secret, secret_from_environment
from trajkit.errors import RequestError
from trajkit.schema import Manifest
from trajkit.sources.access import Access
from trajkit.sources.request import ExportRequest, Tally
from trajkit.stack.state import local_stack

if TYPE_CHECKING:
    from trajkit.sources.tensorzero.archive.database import ArchiveDatabase
    from trajkit.sources.tensorzero.connect.clickhouse.database import ClickHouse
    from trajkit.sources.tensorzero.connect.postgres.database import Postgres
    from trajkit.sources.tensorzero.look.archive import LookedArchive
    from trajkit.sources.tensorzero.look.clickhouse import LookedClickHouse
    from trajkit.sources.tensorzero.look.models import DatabaseLook
    from trajkit.sources.tensorzero.look.postgres import LookedPostgres

CLICKHOUSE_VARIABLE = "TENSORZERO_CLICKHOUSE_URL"
"""The environment variable that TensorZero itself reads."""

POSTGRES_VARIABLE = "TENSORZERO_POSTGRES_URL"
"""The other one: TensorZero too writes to ClickHouse where both are set."""


class Location(NamedTuple):
    """A source, and who named it. A URL may hold a password: it is a secret."""

    value: SecretStr
    named_by: str
    is_database: bool

    @property
    def is_tensorzero(self) -> bool:
        """Whether it is a TensorZero database or an archive of one; else it is a store."""
        if self.is_database:
            return True
        from trajkit.sources.tensorzero.archive.manifest import is_archive

        return is_archive(Path(self.value.get_secret_value()))


def find_source(source: str | None, project: Project) -> Location:
    """Decide where to read.

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
    is_database = "://" in text
    secret = checked_secret(text, named_by) if is_database else None
    return Location(secret or SecretStr(text), named_by, is_database)


def shown(location: Location) -> str:
    """Where that is, without credentials.

    Raises:
        RequestError: It is a URL that no database has.
    """
    from trajkit.sources.tensorzero.connect.clickhouse import url as clickhouse_url
    from trajkit.sources.tensorzero.connect.postgres import url as postgres_url

    value = location.value.get_secret_value()
    if not location.is_database:
        return value
    if postgres_url.is_postgres(value):
        return postgres_url.parse_url(value).shown
    return clickhouse_url.parse_url(value).shown


def open_database(location: Location, access: Access = Access()) -> ClickHouse | Postgres:  # noqa: B008 -- frozen
    """Connect to a database, whichever of the two it is. It must be closed.

    Args:
        location: Where it is.
        access: What queries may take of its server.

    Raises:
        RequestError: It is a URL that no database has.
        ServiceError: It cannot be reached, or refuses the user.
        MissingExtra: Its driver is not installed.
    """
    from trajkit.sources.tensorzero.connect.postgres.url import is_postgres

    url = location.value.get_secret_value()
    if is_postgres(url):
        from trajkit.sources.tensorzero.connect.postgres.database import Postgres

        return Postgres(url, access)
    from trajkit.sources.tensorzero.connect.clickhouse.database import ClickHouse

    return ClickHouse(url, access)


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
        on_progress: Told what is being done, how many rows or parts are done, and of how many (None when
            unknown).
        access: What queries may take of a database's server.

    Returns:
        The tally, and the manifest of the store (None when there is no goal).
    """
    if not location.is_tensorzero:
        from trajkit.sources.local import export_store

        return export_store(Path(location.value.get_secret_value()), request, goal)
    from trajkit.sources.tensorzero.export.export import export

    with contextlib.closing(_opened(location, access)) as database:
        return export(database, request, goal, on_progress=lambda progress: on_progress(*progress))


def _opened(location: Location, access: Access) -> ClickHouse | Postgres | ArchiveDatabase:
    """A database, or an archive of one."""
    if location.is_database:
        return open_database(location, access)
    from trajkit.sources.tensorzero.archive.database import ArchiveDatabase

    return ArchiveDatabase(Path(location.value.get_secret_value()))


def look_at(location: Location, access: Access = Access()) -> DatabaseLook:  # noqa: B008 -- frozen
    """Describe a database, or an archive of one; a database does the counting, and is only read.

    Args:
        location: Where it is.
        access: What queries may take of its server.

    Raises:
        ServiceError: The database cannot be reached, or is not TensorZero's.
        StoreError: The archive is damaged.
    """
    from trajkit.sources.tensorzero.look.look import look

    with contextlib.closing(_looked_at(location, access)) as database:
        return look(database)


def _looked_at(location: Location, access: Access) -> LookedClickHouse | LookedPostgres | LookedArchive:
    from trajkit.sources.tensorzero.connect.postgres.url import is_postgres
    from trajkit.sources.tensorzero.look.archive import LookedArchive
    from trajkit.sources.tensorzero.look.clickhouse import LookedClickHouse
    from trajkit.sources.tensorzero.look.postgres import LookedPostgres

    value = location.value.get_secret_value()
    if not location.is_database:
        return LookedArchive(Path(value))
    return LookedPostgres(value, access) if is_postgres(value) else LookedClickHouse(value, access)
