"""Collect the origin of a job for its record: functions and variants, versions, commit."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from importlib import metadata
from typing import NamedTuple

import trajkit
from trajkit.store.dataset import Dataset
from trajkit.store.engine import connect
from trajkit.store.reader import verify
from trajkit.store.view import create_views


class Origin(NamedTuple):
    """The functions and variants of a store's learned steps."""

    functions: tuple[str, ...]
    """The gateway's functions."""
    variants: tuple[str, ...]
    """The variants that answered."""

    @property
    def function(self) -> str | None:
        """The function, when it is only one."""
        return self.functions[0] if len(self.functions) == 1 else None


def origin_of(data: Dataset) -> Origin:
    """Return the functions and variants of the learned steps."""
    verify(data.store)
    with connect() as connection:
        create_views(connection, data.store)
        ((functions, variants),) = connection.execute(
            "SELECT list_sort(list(DISTINCT function_name)), list_sort(list(DISTINCT variant_name))"
            " FROM steps WHERE loss_weight > 0"
        ).fetchall()
    return Origin(
        tuple(name for name in functions or () if name is not None),
        tuple(name for name in variants or () if name is not None),
    )


def versions_of(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of trajkit and of the installed ones of these packages."""
    found = {"trajkit": trajkit.__version__}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def code_commit() -> str | None:
    """Return the commit of the working folder's repository, and whether there are uncommitted changes."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
