"""Bring a database into an archive: what is not there yet, and nothing twice.

A database is asked what each day's ids add up to. Days that the archive does not have come whole; where it
has a day and the sums differ, only the ids are compared, and the rows come that are missing. What the
database no longer has stays in the archive.
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
"""Days are brought together up to so much text."""
_MOST_WINDOWS = 16
_WINDOW_DAYS = 100
"""Each is an open file while the days of a window are told apart."""
_BYTES_PER_ROW = 4_000
"""Where the database does not tell."""
_KEYS_AT_ONCE = 500_000
"""Each query for rows by their keys looks through the whole table."""


class Archived(NamedTuple):
    """What a run did."""

    manifest: ArchiveManifest
    n_new: dict[str, int]
    """Rows by table that were not in the archive before."""
    was_interrupted: bool
    """Whether it went on where a run that was killed had stopped."""


def archive(
    origin: Origin,
    folder: Path,
    *,
    is_moved: bool = False,
    on_progress: OnProgress = lambda what, n_done, n_total: None,
) -> Archived:
    """Bring what a database has and an archive has not.

    Args:
        origin: The database.
        folder: The archive; it need not be there. At an address each file is sent when it is complete.
        is_moved: The database is the archive's, at another address.
        on_progress: Told now and then how far it is.

    Raises:
        ServiceError: The database failed. The same call again goes on from there.
        StoreError: The folder is something else, is of another database, is being written by another process,
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
        raise StoreError(f"{folder} cannot be written: {error.strerror or error}") from error
    except duckdb.Error as error:
        raise StoreError(
            f"{folder} cannot be brought up to date: {first_line(error)}",
            hint="is the disk full? `trajkit archive verify` finds a damaged file",
        ) from error


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[Path]:
    """Keep other runs away; yield where the run's journal is: in the archive, or here for an address."""
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
        """Bring what is new of a table; how many rows that was."""
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
        """Bring the rows of these days that are missing, by their keys."""
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
        for day in twice:  # the same ids, not as often
            self._contents.renew(table, day, self._origin.rows(table, [day]))
        for day in with_gone:  # when their missing rows are here: the next run does not look again
            self._contents.note_gone(table, day, there[day])

    def _compare(self, table: Table, day: int) -> tuple[list[str], int]:
        """The keys of a day that the archive has not, and how many it has that the database has not."""
        here = f"(SELECT {table.key} AS key FROM {scan(self._contents.paths(table, day))})"
        of_day = f"(SELECT key FROM there WHERE day = {day})"
        missing = self._connection.execute(f"SELECT DISTINCT key FROM {of_day} ANTI JOIN {here} USING (key)")
        keys = [key for (key,) in missing.fetchall()]
        gone = self._connection.execute(f"SELECT count(*) FROM {here} ANTI JOIN {of_day} USING (key)")
        return keys, int(gone.fetchall()[0][0])

    def _renew(self, table: Table, there: Seen) -> None:
        """Write a table anew that is not cut into days; what the database no longer has stays."""
        after = self._contents.renew(table, WHOLE, self._origin.rows(table, [WHOLE]))
        if after.n_rows > there.n_rows:
            self._contents.note_gone(table, WHOLE, there)


def _windows(days: Sequence[int], there: Mapping[int, Seen], n_bytes: int) -> Iterator[list[int]]:
    """Days that are brought together.

    ClickHouse does not sort by time: whatever the day, it looks through the whole table. So there are few
    windows, and one of them does not hold much more than its share.
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
