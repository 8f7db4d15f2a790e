"""Where to read: what was said, else the folder's `trajkit.toml`, the environment, the local stack."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pydantic import SecretStr

from trajkit._settings import Project, secret_from_environment
from trajkit.errors import RequestError
from trajkit.schema import Manifest
from trajkit.sources.request import ExportRequest, Tally
from trajkit.stack.state import local_stack

CLICKHOUSE_VARIABLE = "TENSORZERO_CLICKHOUSE_URL"
"""The environment variable that TensorZero itself reads."""


class Location(NamedTuple):
    """A source, and who named it. A URL may hold a password: it is a secret."""

    value: SecretStr
    named_by: str
    is_database: bool


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
    if (url := secret_from_environment(CLICKHOUSE_VARIABLE)) is not None:
        return Location(url, CLICKHOUSE_VARIABLE, True)
    if (stack := local_stack()) is not None:
        return Location(stack.clickhouse_url, "the local stack", True)
    hint = f"start a local one with `trajkit up`, set {CLICKHOUSE_VARIABLE}, or pass --source"
    if os.environ.get("TENSORZERO_POSTGRES_URL"):
        hint += "; TENSORZERO_POSTGRES_URL is set, but this trajkit reads TensorZero from ClickHouse only"
    raise RequestError("no source to export from", hint=hint)


def _location(text: str, named_by: str) -> Location:
    return Location(SecretStr(text), named_by, "://" in text)


def export_from(
    location: Location,
    request: ExportRequest,
    goal: Path | None,
    *,
    on_progress: Callable[[str, int, int | None], None],
) -> tuple[Tally, Manifest | None]:
    """Export from a database or from a store.

    Args:
        location: Where to read.
        request: Which episodes.
        goal: The store to write; None to count only.
        on_progress: Told what is being done, how many rows or parts are done, and of how many (None when
            unknown).

    Returns:
        The tally, and the manifest of the store (None when there is no goal).
    """
    value = location.value.get_secret_value()
    if not location.is_database:
        from trajkit.sources.local import export_store

        return export_store(value, request, goal)
    from trajkit.sources.tensorzero.clickhouse import ClickHouse
    from trajkit.sources.tensorzero.export import export

    database = ClickHouse(value)
    try:
        return export(database, request, goal, on_progress=lambda progress: on_progress(*progress))
    finally:
        database.close()
