"""Read the SQL files of `sql/`."""

from __future__ import annotations

import functools
from importlib import resources


@functools.cache
def read_sql(name: str) -> str:
    """The text of a file in `sql/`, named without its ending."""
    return (
        resources.files("trajkit.sources.tensorzero.export")
        .joinpath("sql", f"{name}.sql")
        .read_text(encoding="utf-8")
    )
