"""The contents of an archive while a run adds to it: one file at a time, recorded once it is renamed."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from trajkit._core.address import Address
from trajkit._core.files import sha256_file, temporary_beside
from trajkit._core.sending import send_file
from trajkit.errors import StoreError
from trajkit.schema.base import JsonObject
from trajkit.sources.tensorzero.archive.layout import DAY, TABLES, Table, day_name
from trajkit.sources.tensorzero.archive.local import rows_seen
from trajkit.sources.tensorzero.archive.manifest import (
    MANIFEST_NAME,
    NOTHING,
    ArchivedDay,
    ArchiveManifest,
    ArchivePart,
    Journal,
    Seen,
    read_manifest,
    refuse_another,
    this_run,
    write_manifest,
)
from trajkit.sources.tensorzero.archive.part import PartFile, read_part
from trajkit.sources.tensorzero.connect.tables import pc
from trajkit.sources.tensorzero.export.spool import Spool

_PART_ROWS = 250_000
_PART_BYTES = 1_000_000_000
"""Approximate maximum of rows per file."""
_SMALL_BYTES = 4_000_000
"""Smaller files are rewritten when their day gets rows."""


class Contents:
    """The files of an archive, including those that the run has added.

    Args:
        folder: The archive.
        records: The folder of the journal and of scratch files; the archive's own unless it is at an address.
        source: The database that the run reads.
        connection: Of `local.connect_to`.
        is_moved: The database is the archive's, at another address.

    Raises:
        StoreError: The archive is damaged, or of another database.
    """

    def __init__(
        self,
        folder: Path,
        records: Path,
        source: JsonObject,
        connection: duckdb.DuckDBPyConnection,
        *,
        is_moved: bool,
    ) -> None:
        self._folder = folder
        self._records = records
        self._source = source
        self._connection = connection
        self._manifest = read_manifest(folder) if (folder / MANIFEST_NAME).exists() else None
        if self._manifest is not None and not is_moved:
            refuse_another(folder, self._manifest.source, source)
        self._journal = Journal(folder, records, source, self._manifest)
        if not is_moved:
            refuse_another(folder, self._journal.source, source)
        self._remove_strays()

    @property
    def n_added(self) -> int:
        """Rows that the run has added, including those from before it was killed."""
        return self._journal.n_rows

    def parts(self, table: Table, day: int | None = None) -> list[ArchivePart]:
        """Return the files of a table, or of one of its days."""
        old = self._manifest.parts_of(table.name) if self._manifest else []
        new = [part for part in self._journal.parts.values() if part.table == table.name]
        every = [part for part in [*old, *new] if day in (None, part.day)]
        return [part for part in every if part.path not in self._journal.replaced]

    def paths(self, table: Table, day: int) -> list[Path]:
        """Return the paths of the files of a day."""
        return [self._folder / part.path for part in self.parts(table, day)]

    def seen(self, table: Table) -> dict[int, Seen]:
        """Return rows and sum for each day: over keys, or over all columns in a table without days."""
        found: dict[int, Seen] = {}
        for part in self.parts(table):
            found[part.day] = found.get(part.day, NOTHING) + part.seen
        return found

    def known_gone(self, table: Table) -> dict[int, Seen]:
        """Return the days of which the database has lost rows, as last seen there."""
        return {day: known.seen for (name, day), known in self._gone().items() if name == table.name}

    def _gone(self) -> dict[tuple[str, int], ArchivedDay]:
        before = self._manifest.gone if self._manifest else ()
        return {(day.table, day.day): day for day in before} | self._journal.gone

    def note_gone(self, table: Table, day: int, seen: Seen) -> None:
        """Record that the database has lost rows of a day, and still has these."""
        known = ArchivedDay(table=table.name, day=day, n_rows=seen.n_rows, sum=f"{seen.total:016x}")
        self._journal.note_gone(known)

    def finish(self, as_of: datetime) -> ArchiveManifest:
        """Write the manifest, and remove what it no longer names."""
        parts = [part for table in TABLES for part in self.parts(table)]
        runs = self._manifest.runs if self._manifest else ()
        if self.n_added or not runs:
            runs = (*runs, this_run(as_of, self.n_added))
        manifest = ArchiveManifest(
            source=self._source,
            as_of=as_of,
            parts=tuple(sorted(parts, key=lambda part: part.path)),
            gone=tuple(self._gone().values()),
            runs=runs,
        )
        write_manifest(self._folder, manifest)
        self._journal.remove()
        for path in self._journal.replaced:
            (self._folder / path).unlink(missing_ok=True)
        return manifest

    # -- adding ----------------------------------------------------------------------------------------------

    def add(self, table: Table, days: Sequence[int], batches: Iterator[pa.RecordBatch]) -> None:
        """Add new rows of some days, each day in its own file."""
        if len(days) == 1:
            self._write_day(table, days[0], batches)
            return
        scratch = self._records / _scratch_name(table)
        scratch.mkdir()
        try:
            schema = table.travelling.append(pa.field("bucket", pa.uint16()))
            spool = Spool(scratch, table.name, schema, len(days))
            spool.fill(_bucketed(batch, days, schema) for batch in batches)
            for number, day in enumerate(days):
                if spool.size(number).n_rows:
                    self._write_day(table, day, _spooled(spool.path(number)))
                spool.path(number).unlink(missing_ok=True)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def renew(self, table: Table, day: int, batches: Iterator[pa.RecordBatch]) -> ArchivePart:
        """Replace the rows of a day that have the same keys."""
        return self._write(table, day, batches, is_anew=True)

    def _write_day(self, table: Table, day: int, batches: Iterator[pa.RecordBatch]) -> None:
        """Write rows of one day, several files if there are many: written ones stay if the rest fails."""
        while (first := next(batches, None)) is not None:
            self._write(table, day, itertools.chain([first], _worth_a_file(batches, first)))

    def _write(
        self, table: Table, day: int, batches: Iterator[pa.RecordBatch], *, is_anew: bool = False
    ) -> ArchivePart:
        """Write rows of one day as a file; new ones join the last file of the day if it is small."""
        known = self.parts(table, day)
        replaced = known if is_anew else [part for part in known if part.n_bytes < _SMALL_BYTES][-1:]
        old = [self._folder / part.path for part in replaced]
        path = self._unused(table, day)
        if not isinstance(path, Address):
            path.parent.mkdir(exist_ok=True)
        temporary = temporary_beside(path)
        try:
            with PartFile(temporary, table) as file:
                (_write_instead if is_anew else _write_after)(file, table, old, batches)
            seen = rows_seen(self._connection, table, temporary)
            part = ArchivePart(
                path=f"{table.name}/{path.name}",
                table=table.name,
                day=day,
                n_rows=seen.n_rows,
                n_bytes=temporary.stat().st_size,
                sha256=sha256_file(temporary),
                sum=f"{seen.total:016x}",
            )
            send_file(temporary, path) if isinstance(path, Address) else temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        n_new = part.n_rows - sum(each.n_rows for each in replaced)
        self._journal.add(part, n_new=max(0, n_new), replaces=[each.path for each in replaced])
        return part

    def _unused(self, table: Table, day: int) -> Path:
        """Return a name for another file of a day."""
        for number in itertools.count():
            path = self._folder / table.name / f"{day_name(day)}-{number:02}.parquet"
            if not path.exists():
                return path
        raise AssertionError

    def _remove_strays(self) -> None:
        """Remove the leftovers of a killed run: files that were not finished, or not yet recorded."""
        known = {part.path for table in TABLES for part in self.parts(table)} | self._journal.replaced
        for table in TABLES:
            shutil.rmtree(self._records / _scratch_name(table), ignore_errors=True)
            if (self._folder / table.name).is_symlink():
                raise StoreError(
                    f"{self._folder / table.name} is a link", hint="copy the files into the archive instead"
                )
        for name in self._files():
            if name not in known:
                (self._folder / name).unlink()

    def _files(self) -> list[str]:
        """Return the files in the folders of the tables, by their paths below the archive."""
        folders = [table.name for table in TABLES]
        if isinstance(self._folder, Address):
            return [name for name in self._folder.sizes() if name.partition("/")[0] in folders]
        return [f"{name}/{path.name}" for name in folders for path in (self._folder / name).glob("*")]


def _write_after(
    file: PartFile, table: Table, old: Sequence[Path], batches: Iterator[pa.RecordBatch]
) -> None:
    """Write the rows of old files, and then new ones."""
    for path in old:
        for batch in read_part(path):
            file.add_read(batch)
    for batch in batches:
        file.add(batch)


def _write_instead(
    file: PartFile, table: Table, old: Sequence[Path], batches: Iterator[pa.RecordBatch]
) -> None:
    """Write rows, and then those of old files that have other keys."""
    keys: list[Any] = []
    for batch in batches:
        file.add(batch)
        keys.append(batch.column(table.key))
    renewed = pa.chunked_array(keys, pa.string())
    for path in old:
        for batch in read_part(path):
            file.add_read(batch.filter(pc.invert(pc.is_in(batch.column(table.key), value_set=renewed))))


def _worth_a_file(batches: Iterator[pa.RecordBatch], first: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the next batches, until they and the first are enough for a file."""
    n_rows, n_bytes = first.num_rows, first.nbytes
    while n_rows < _PART_ROWS and n_bytes < _PART_BYTES and (batch := next(batches, None)) is not None:
        n_rows += batch.num_rows
        n_bytes += batch.nbytes
        yield batch


def _bucketed(batch: pa.RecordBatch, days: Sequence[int], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the index of their day among these."""
    places = pc.index_in(batch.column(DAY), value_set=pa.array(days, pa.int32())).cast(pa.uint16())
    return pa.RecordBatch.from_arrays([*batch.columns, places], schema=schema)


def _spooled(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_file(source) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def _scratch_name(table: Table) -> str:
    return f".days-{table.name}"
