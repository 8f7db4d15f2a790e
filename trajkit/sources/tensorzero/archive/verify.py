"""Verify that an archive has all rows of its database with the same content, per table and day."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import duckdb

from trajkit._core.address import reaching
from trajkit._core.files import sha256_file
from trajkit.errors import StoreError
from trajkit.sources.tensorzero.archive.checksum import DUCKDB
from trajkit.sources.tensorzero.archive.layout import MS_PER_DAY, TABLES, WHOLE, Table
from trajkit.sources.tensorzero.archive.local import connect_to, create_view, load, number_of
from trajkit.sources.tensorzero.archive.manifest import (
    NOTHING,
    ArchiveManifest,
    Seen,
    read_manifest,
    refuse_another,
)
from trajkit.sources.tensorzero.archive.origin import KEYS, Origin
from trajkit.sources.tensorzero.connect.streams import OnProgress
from trajkit.store.engine import interruptible

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DayCheck(NamedTuple):
    """A day of a table, in the database and in the archive."""

    table: str
    day: int
    """Counted from 1970; -1 for a table without days."""
    n_there: int
    """Rows in the database."""
    n_here: int
    """Rows in the archive."""
    sum_there: str
    """Sum of the database's rows, 64 bits in hexadecimal digits."""
    sum_here: str
    """Sum of the archive's rows."""
    n_missing: int = 0
    """Rows of the database that are missing from the archive."""
    n_different: int = 0
    """Rows that the archive has with different content."""
    n_newer: int = 0
    """Rows of the database with ids from after the archive's last run."""
    n_gone: int = 0
    """Rows of the archive that the database no longer has, or of which it has lost the texts."""
    example: str | None = None
    """The key of a row that is missing or different."""

    @property
    def is_complete(self) -> bool:
        """Whether the archive has everything that it should have."""
        return self.n_missing == self.n_different == 0


class Verification(NamedTuple):
    """The result of a verification."""

    manifest: ArchiveManifest
    days: list[DayCheck]
    """Every day of every table, in order."""

    @property
    def is_complete(self) -> bool:
        """Whether every day is complete."""
        return all(day.is_complete for day in self.days)


def verify(
    origin: Origin,
    folder: Path,
    *,
    is_moved: bool = False,
    on_progress: OnProgress = lambda what, n_done, n_total: None,
) -> Verification:
    """Compare an archive with its database: checksums of the files, then counts and sums per table and day.

    The database adds up its rows by itself; if a sum differs, the rows of that day are compared by number.

    Args:
        origin: The database.
        folder: The archive.
        is_moved: The database is the archive's, at another address.
        on_progress: Told now and then how far it is.

    Raises:
        StoreError: It is not an archive, a file is damaged, or it is of another database.
        ServiceError: The database failed.
    """
    manifest = read_manifest(folder)
    if not is_moved:
        refuse_another(folder, manifest.source, origin.describe())
    with reaching(folder):
        _check_files(folder, manifest, on_progress)
    days: list[DayCheck] = []
    with contextlib.closing(connect_to()) as connection, interruptible(connection):
        for number, table in enumerate(TABLES):
            on_progress("comparing tables", number, len(TABLES))
            days += _compare(connection, origin, folder, manifest, table)
    return Verification(manifest, days)


def _check_files(folder: Path, manifest: ArchiveManifest, on_progress: OnProgress) -> None:
    for number, part in enumerate(manifest.parts):
        on_progress("reading files", number, len(manifest.parts))
        if sha256_file(folder / part.path) != part.sha256:
            raise StoreError(
                f"{folder / part.path} is not the file that was written: its sha256 differs",
                hint="copy the archive again, or archive the database into another folder",
            )


def _compare(
    connection: duckdb.DuckDBPyConnection,
    origin: Origin,
    folder: Path,
    manifest: ArchiveManifest,
    table: Table,
) -> list[DayCheck]:
    create_view(connection, table, [folder / part.path for part in manifest.parts_of(table.name)])
    there, here = origin.content_seen(table), _content_seen(connection, table)
    found = {
        day: DayCheck(table.name, day, one.n_rows, other.n_rows, f"{one.total:016x}", f"{other.total:016x}")
        for day in sorted({*there, *here})
        for one, other in [(there.get(day, NOTHING), here.get(day, NOTHING))]
    }
    differing = [day for day in found if there.get(day) != here.get(day)]
    if differing:
        _explain(connection, origin, table, differing, found, manifest.as_of)
    return list(found.values())


def _content_seen(connection: duckdb.DuckDBPyConnection, table: Table) -> Mapping[int, Seen]:
    rows = connection.execute(
        f"SELECT {_day(table)} AS day, count(*), {DUCKDB.total.format(number_of(table))}"
        f" FROM {table.name} GROUP BY 1"
    ).fetchall()
    return {int(day): Seen(int(n_rows), int(total)) for day, n_rows, total in rows}


def _day(table: Table) -> str:
    return f"CAST({_milliseconds(table.key)} // {MS_PER_DAY} AS INT)" if table.is_dated else str(WHOLE)


def _milliseconds(key: str) -> str:
    """Return SQL for the time in an id."""
    return f"CAST('0x' || replace(left({key}, 13), '-', '') AS UBIGINT)"


def _explain(
    connection: duckdb.DuckDBPyConnection,
    origin: Origin,
    table: Table,
    days: Sequence[int],
    found: dict[int, DayCheck],
    as_of: datetime,
) -> None:
    """Compare these days row by row."""
    load(connection, "there", KEYS, origin.keys(table, days))
    as_of_ms = (as_of - _EPOCH) // timedelta(milliseconds=1)
    is_newer = f"{_milliseconds('key')} >= {as_of_ms}" if table.is_dated else "false"
    rows = connection.execute(
        f"""
        WITH sides AS (
            SELECT day, key, number, true AS is_there FROM there
            UNION ALL SELECT {_day(table)}, {table.key}, {number_of(table)}, false FROM {table.name}
            WHERE {_day(table)} IN ({", ".join(map(str, days))})
        ), counted AS (
            SELECT day, key, count(*) FILTER (is_there) - count(*) FILTER (NOT is_there) AS more,
                   bool_or(number IS NULL) AS is_expired,
                   list_sort(list(number) FILTER (is_there))
                       IS DISTINCT FROM list_sort(list(number) FILTER (NOT is_there)) AS is_other
            FROM sides GROUP BY day, key
        ), judged AS (
            SELECT *, more > 0 AND NOT {is_newer} AS is_missing, more > 0 AND {is_newer} AS is_new,
                   more = 0 AND is_other AND NOT is_expired AS is_different FROM counted
        )
        SELECT day, coalesce(sum(more) FILTER (is_missing), 0)::BIGINT, count(*) FILTER (is_different),
               coalesce(sum(more) FILTER (is_new), 0)::BIGINT,
               coalesce(sum(-more) FILTER (more < 0), 0)::BIGINT
                   + count(*) FILTER (more = 0 AND is_other AND is_expired),
               min(key) FILTER (is_missing OR is_different)
        FROM judged GROUP BY day
        """
    ).fetchall()
    for day, n_missing, n_different, n_newer, n_gone, example in rows:
        found[day] = found[day]._replace(
            n_missing=n_missing, n_different=n_different, n_newer=n_newer, n_gone=n_gone, example=example
        )
