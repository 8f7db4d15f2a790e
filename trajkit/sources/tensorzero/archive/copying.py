"""Copy new rows of a database into an archive, without duplicates.

A database computes the sum of each day's ids. Days that the archive does not have are copied whole; for
a day whose sums differ, only the ids are compared, and the missing rows are copied. Rows that the
database no longer has stay in the archive.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa

from trajkit._core.address import Address, reaching
from trajkit._core.files import unwritable
from trajkit._core.lock import locked
from trajkit._core.sending import changing, records_of
from trajkit._core.user_state import make_writable
from trajkit.errors import StoreError
from trajkit.sources.tensorzero.archive.contents import Contents
from trajkit.sources.tensorzero.archive.layout import TABLES, WHOLE, Table
from trajkit.sources.tensorzero.archive.local import connect_to, load, scan
from trajkit.sources.tensorzero.archive.manifest import (
    JOURNAL_NAME,
    MANIFEST_NAME,
    ArchiveManifest,
    Seen,
    is_archive,
)
from trajkit.sources.tensorzero.archive.origin import KEYS, Origin
from trajkit.sources.tensorzero.connect.streams import OnProgress
from trajkit.store.engine import first_line, interruptible

_WINDOW_BYTES = 1_000_000_000
"""Maximum bytes of text of days that are copied together."""
_MOST_WINDOWS = 16
_WINDOW_DAYS = 100
"""Maximum days per window: each is an open file."""
_BYTES_PER_ROW = 4_000
"""Assumed if the database does not report it."""
_KEYS_AT_ONCE = 500_000
"""Keys per query: each one scans the whole table."""


class Archived(NamedTuple):
    """The result of a run."""

    manifest: ArchiveManifest
    n_new: dict[str, int]
    """New rows in the archive, by table."""
    was_interrupted: bool
    """Whether it continued a killed run."""


def archive(
    origin: Origin,
    folder: Path,
    *,
    is_moved: bool = False,
    on_progress: OnProgress = lambda what, n_done, n_total: None,
) -> Archived:
    """Copy the rows of a database that an archive does not have.

    Args:
        origin: The database.
        folder: The archive; it need not exist. At an address each file is sent when it is complete.
        is_moved: The database is the archive's, at another address.
        on_progress: Called with the progress now and then.

    Raises:
        ServiceError: The database failed. The same call again continues from there.
        StoreError: The folder is not an archive, is of another database, is being written by another process,
            or cannot be written.
    """
    as_of = datetime.now(UTC)
    try:
        with _alone(folder) as records, contextlib.closing(connect_to()) as connection:
            was_interrupted = (records / JOURNAL_NAME).exists()
            with interruptible(connection):
                contents = Contents(folder, records, origin.describe(), connection, is_moved=is_moved)
                run = _Run(origin, contents, connection, on_progress)
                n_new = {table.name: run.bring(table) for table in TABLES}
                return Archived(contents.finish(as_of), n_new, was_interrupted)
    except OSError as error:
        raise unwritable(folder, error) from error
    except duckdb.Error as error:
        raise StoreError(
            f"{folder} cannot be updated: {first_line(error)}",
            hint="is the disk full? `trajkit archive verify` finds a damaged file",
        ) from error


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[Path]:
    """Lock out other runs; yield the folder of the journal: the archive's, or a local one for an address."""
    if isinstance(folder, Address):
        records = records_of(folder, "archiving")
        _refuse_others(folder, records)
        with changing(folder, folder / MANIFEST_NAME), reaching(folder):
            make_writable(records)
            yield records
            with contextlib.suppress(OSError):
                records.rmdir()
        return
    _refuse_others(folder, folder)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock") as holder:
        if holder is not None:
            raise StoreError(f"{folder} is being written by {holder}", hint="wait until it has finished")
        yield folder


def _refuse_others(folder: Path, records: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder} exists already and is not a folder", hint="choose another -o")
    is_ours = is_archive(folder) or (records / JOURNAL_NAME).exists()
    if isinstance(folder, Address):
        has_others = not is_ours and folder.is_dir()  # at an address a folder is never empty
    else:
        is_ours = is_ours or (folder / ".lock").exists()
        has_others = folder.is_dir() and not is_ours and any(folder.iterdir())
    if has_others:
        raise StoreError(f"{folder} is not an archive and not empty", hint="choose another -o")


class _Run:
    """One run over all tables."""

    def __init__(
        self,
        origin: Origin,
        contents: Contents,
        connection: duckdb.DuckDBPyConnection,
        on_progress: OnProgress,
    ) -> None:
        self._origin = origin
        self._contents = contents
        self._connection = connection
        self._on_progress = on_progress

    def bring(self, table: Table) -> int:
        """Copy the new rows of a table; return their number."""
        before = self._contents.n_added
        there, here = self._origin.keys_seen(table), self._contents.seen(table)
        gone = self._contents.known_gone(table)
        changed = [
            day
            for day in sorted(there)
            if there[day] != here.get(day) and (day not in here or there[day] != gone.get(day))
        ]
        whole = [day for day in changed if day not in here]
        grown = [day for day in changed if day in here]
        n_total = sum(there[day].n_rows for day in whole)
        for days in _windows(whole, there, self._origin.n_bytes(table)):
            n_done = self._contents.n_added - before
            rows = self._counted(table, self._origin.rows(table, days), n_done, n_total)
            self._contents.add(table, days, rows)
        if not table.is_dated:
            for _ in grown:
                self._renew(table, there[WHOLE])
            return self._contents.n_added - before
        for start in range(0, len(grown), _WINDOW_DAYS):
            self._complete(table, grown[start : start + _WINDOW_DAYS], there)
        return self._contents.n_added - before

    def _counted(
        self, table: Table, batches: Iterator[pa.RecordBatch], n_done: int, n_total: int | None
    ) -> Iterator[pa.RecordBatch]:
        what = f"reading {table.name.replace('_', ' ')}"
        self._on_progress(what, n_done, n_total)
        for batch in batches:
            n_done += batch.num_rows
            self._on_progress(what, n_done, n_total)
            yield batch

    def _complete(self, table: Table, days: Sequence[int], there: Mapping[int, Seen]) -> None:
        """Copy the missing rows of these days, by their keys."""
        load(self._connection, "there", KEYS, self._origin.keys(table, days))
        missing: list[str] = []
        twice: list[int] = []
        with_gone: list[int] = []
        for day in days:
            keys, n_gone = self._compare(table, day)
            missing += keys
            if n_gone:
                with_gone.append(day)
            elif not keys:
                twice.append(day)
        for start in range(0, len(missing), _KEYS_AT_ONCE):
            rows = self._origin.rows_of(table, missing[start : start + _KEYS_AT_ONCE])
            self._contents.add(table, days, self._counted(table, rows, start, len(missing)))
        for day in twice:  # the same ids, with other numbers of duplicates
            self._contents.renew(table, day, self._origin.rows(table, [day]))
        for day in with_gone:  # after their missing rows are copied: the next run skips them
            self._contents.note_gone(table, day, there[day])

    def _compare(self, table: Table, day: int) -> tuple[list[str], int]:
        """Return the keys of a day that only the database has, and the number that only the archive has."""
        here = f"(SELECT {table.key} AS key FROM {scan(self._contents.paths(table, day))})"
        of_day = f"(SELECT key FROM there WHERE day = {day})"
        missing = self._connection.execute(f"SELECT DISTINCT key FROM {of_day} ANTI JOIN {here} USING (key)")
        keys = [key for (key,) in missing.fetchall()]
        gone = self._connection.execute(f"SELECT count(*) FROM {here} ANTI JOIN {of_day} USING (key)")
        return keys, int(gone.fetchall()[0][0])

    def _renew(self, table: Table, there: Seen) -> None:
        """Rewrite a table without days; rows that the database no longer has stay."""
        after = self._contents.renew(table, WHOLE, self._origin.rows(table, [WHOLE]))
        if after.n_rows > there.n_rows:
            self._contents.note_gone(table, WHOLE, there)


def _windows(days: Sequence[int], there: Mapping[int, Seen], n_bytes: int) -> Iterator[list[int]]:
    """Yield the days that are copied together.

    ClickHouse does not sort by time: for any day it scans the whole table. So there are few windows, and
    none of them has much more than its share.
    """
    n_rows = sum(seen.n_rows for seen in there.values())
    per_row = n_bytes / n_rows if n_rows and n_bytes else _BYTES_PER_ROW
    wanted = per_row * sum(there[day].n_rows for day in days)
    limit = max(_WINDOW_BYTES, wanted / _MOST_WINDOWS)
    window: list[int] = []
    size = 0.0
    for day in days:
        window.append(day)
        size += per_row * there[day].n_rows
        if size >= limit or len(window) == _WINDOW_DAYS:
            yield window
            window, size = [], 0.0
    if window:
        yield window
