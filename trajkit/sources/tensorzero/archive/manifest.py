"""The manifest of an archive, and the journal by which a killed run continues."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, ValidationError

import trajkit
from trajkit._core.address import Address
from trajkit._core.files import write_text
from trajkit._core.outside import check_size, regular_file
from trajkit._core.sending import overwrite
from trajkit.errors import StoreError
from trajkit.schema import Model
from trajkit.schema.base import Count, JsonObject, Name, UtcTime
from trajkit.schema.manifest import Sha256
from trajkit.sources.tensorzero.archive.layout import TABLES
from trajkit.store.engine import first_line

ARCHIVE_VERSION = 1
"""The version of the archive's layout that this trajkit writes, and the newest that it reads."""

MANIFEST_NAME = "archive.json"
"""The file that makes a folder an archive."""

JOURNAL_NAME = ".archiving.jsonl"
"""The files that a run has written so far; removed when it has finished."""

_PART_PATH = re.compile(rf"({'|'.join(table.name for table in TABLES)})/[0-9a-z-]+\.parquet")
_DAMAGED = "the archive is damaged: `trajkit archive` into another folder makes a new one"

Sum = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
"""64 bits in hexadecimal digits."""


class Seen(NamedTuple):
    """A number of rows, and a sum over them."""

    n_rows: int
    total: int
    """Below 2^64."""

    def __add__(self, other: object) -> Seen:
        if not isinstance(other, Seen):
            return NotImplemented
        return Seen(self.n_rows + other.n_rows, (self.total + other.total) % (1 << 64))


NOTHING = Seen(0, 0)


class ArchivePart(Model):
    """One Parquet file."""

    path: Name
    """Relative to the archive, with forward slashes."""
    table: Name
    """Its table."""
    day: int
    """The day of its rows, counted from 1970; -1 for a table without days."""
    n_rows: Count
    """Rows in it."""
    n_bytes: Count
    """Its size."""
    sha256: Sha256
    """Of the file's bytes."""
    sum: Sum
    """Sum over its rows: over their ids, or in a table without days over all their columns."""

    @property
    def seen(self) -> Seen:
        """Return the number and the sum of its rows."""
        return Seen(self.n_rows, int(self.sum, 16))


class ArchivedDay(Model):
    """A day of which the database has lost archived rows, as last seen there."""

    table: Name
    day: int
    n_rows: Count
    sum: Sum

    @property
    def seen(self) -> Seen:
        """Return the number and the sum of its rows."""
        return Seen(self.n_rows, int(self.sum, 16))


class Archiving(Model):
    """One run that added rows."""

    done_at: UtcTime
    n_rows: Count
    """Rows that it added."""
    trajkit_version: Name


class ArchiveManifest(Model):
    """The file that makes a folder an archive. It is written last."""

    format_version: Annotated[int, Field(ge=1)] = ARCHIVE_VERSION
    """Version of the layout."""
    source: JsonObject
    """The database: its kind, its address without credentials, its schema level, its own id."""
    as_of: UtcTime
    """When the last run began: every row that the database had then is in the archive."""
    parts: tuple[ArchivePart, ...]
    """Every file except this one."""
    gone: tuple[ArchivedDay, ...] = ()
    """Days of which the database has since lost rows."""
    runs: tuple[Archiving, ...]
    """The runs, oldest first."""

    def parts_of(self, table: str) -> list[ArchivePart]:
        """Return the files of one table."""
        return [part for part in self.parts if part.table == table]


def is_archive(path: Path) -> bool:
    """Whether a folder is an archive."""
    return (path / MANIFEST_NAME).is_file()


def read_manifest(folder: Path) -> ArchiveManifest:
    """Read an archive's manifest, and check that every part exists with its size.

    Raises:
        StoreError: It is not an archive, is of a newer version, or a part is missing or of another size.
    """
    path = folder / MANIFEST_NAME
    try:
        if not path.exists():
            raise StoreError(
                f"{folder} is not an archive: it has no {MANIFEST_NAME}",
                hint="`trajkit archive` makes one; run again, it continues where a killed one stopped",
            )
        regular_file(path, within=folder, error=StoreError)
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path} cannot be read: {error}", hint=_DAMAGED) from error
    _refuse_newer(folder, value)
    try:
        manifest = ArchiveManifest.model_validate_json(json.dumps(value))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise StoreError(f"{path}: {where}: {first['msg']}", hint=_DAMAGED) from error
    sizes = folder.sizes() if isinstance(folder, Address) else None
    for part in manifest.parts:
        _check_path(part.path, path)
        check_size(folder, part.path, part.n_bytes, listed=sizes, hint=_DAMAGED)
    return manifest


def _check_path(path: str, where: Path) -> None:
    """Raise unless a path is valid for a part of an archive.

    Raises:
        StoreError: It is not.
    """
    if not _PART_PATH.fullmatch(path):
        raise StoreError(f"{where}: {path!r} cannot be a part of an archive", hint=_DAMAGED)


def _refuse_newer(folder: Path, value: Any) -> None:
    version = value.get("format_version") if isinstance(value, dict) else None
    if isinstance(version, int) and version > ARCHIVE_VERSION:
        raise StoreError(
            f"{folder} was written by archive version {version}; this trajkit reads up to {ARCHIVE_VERSION}",
            hint="pip install -U trajkit",
        )


class Journal:
    """The journal of a run, a line at a time: recorded files count even if the run is killed.

    Args:
        folder: The archive's.
        records: The folder of the journal: the archive's own, or a local one if the archive is at an address.
        source: The database.
        manifest: The archive's, None before the first run has ended. A journal for an earlier one is outdated
            (this one has its files, or another machine replaced it), and starts again.

    Raises:
        StoreError: The journal is damaged.
    """

    def __init__(
        self, folder: Path, records: Path, source: JsonObject, manifest: ArchiveManifest | None
    ) -> None:
        self._folder = folder
        self._path = records / JOURNAL_NAME
        self.parts: dict[str, ArchivePart] = {}
        """The added files, by path."""
        self.replaced: set[str] = set()
        """Paths of files whose rows are in other parts now."""
        self.gone: dict[tuple[str, int], ArchivedDay] = {}
        self.source: JsonObject = source
        """The database that the entries are from."""
        self._manifest_of = None if manifest is None else manifest.as_of.isoformat()
        self.n_rows = 0
        self._read()

    def _read(self) -> None:
        if not self._path.exists() and not self._path.is_symlink():
            self._append({"source": self.source, "manifest": self._manifest_of})
            return
        regular_file(self._path, within=self._path.parent, error=StoreError)
        lines = self._path.read_bytes().splitlines(keepends=True)
        sizes = self._folder.sizes() if isinstance(self._folder, Address) else None
        try:
            entries = [json.loads(line) for line in lines if line.endswith(b"\n")]  # the last may be cut off
            if entries and entries[0].get("manifest", self._manifest_of) != self._manifest_of:
                self.remove()
                self._read()
                return
            for entry in entries:
                if self._is_whole(entry, sizes):
                    self._take(entry)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StoreError(f"{self._path} cannot be read: {first_line(error)}", hint=_DAMAGED) from error
        if lines and not lines[-1].endswith(b"\n"):
            with self._path.open("ab") as file:
                file.truncate(sum(map(len, lines[:-1])))

    def _is_whole(self, entry: dict[str, Any], sizes: Mapping[str, int] | None) -> bool:
        """Whether the file of an entry exists: a power cut may have come before it reached the disk."""
        if "part" not in entry:
            return True
        _check_path(entry["part"]["path"], self._path)
        path = self._folder / entry["part"]["path"]
        if sizes is not None:
            return bool(sizes.get(entry["part"]["path"]) == entry["part"]["n_bytes"])
        return path.is_file() and bool(path.stat().st_size == entry["part"]["n_bytes"])

    def _take(self, entry: dict[str, Any]) -> None:
        if "source" in entry:
            self.source = entry["source"]
        elif "gone" in entry:
            day = ArchivedDay.model_validate(entry["gone"])
            self.gone[day.table, day.day] = day
        else:
            part = ArchivePart.model_validate(entry["part"])
            for path in entry["replaces"]:
                _check_path(path, self._path)
            self.parts[part.path] = part
            self.replaced.update(entry["replaces"])
            self.n_rows += entry["n_new"]

    def add(self, part: ArchivePart, *, n_new: int, replaces: Iterable[str] = ()) -> None:
        """Record a renamed part, and the number of its rows that were not in the archive before."""
        self._write({"part": part.model_dump(mode="json"), "replaces": list(replaces), "n_new": n_new})

    def note_gone(self, day: ArchivedDay) -> None:
        """Record that the database has lost rows of a day, and what it still has."""
        self._write({"gone": day.model_dump(mode="json")})

    def _write(self, entry: dict[str, Any]) -> None:
        self._append(entry)
        self._take(entry)

    def _append(self, entry: dict[str, Any]) -> None:
        with self._path.open("ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def remove(self) -> None:
        """Remove the journal: the manifest has everything now."""
        self._path.unlink(missing_ok=True)


def write_manifest(folder: Path, manifest: ArchiveManifest) -> None:
    """Write the manifest."""
    path, text = folder / MANIFEST_NAME, manifest.model_dump_json(indent=1) + "\n"
    overwrite(path, text.encode()) if isinstance(path, Address) else write_text(path, text)


def this_run(done_at: Any, n_rows: int) -> Archiving:
    """Return the record of a run."""
    return Archiving(done_at=done_at, n_rows=n_rows, trajkit_version=trajkit.__version__)


def refuse_another(folder: Path, known: JsonObject, found: JsonObject) -> None:
    """Raise unless two descriptions are of the same database.

    Raises:
        StoreError: They are not, by the ids of the databases, else by their addresses.
    """
    ids = known.get("deployment_id"), found.get("deployment_id")
    is_same = ids[0] == ids[1] if None not in ids else _place(known) == _place(found)
    if not is_same:
        raise StoreError(
            f"{folder} is an archive of {known.get('url')}; this is {found.get('url')}",
            hint="choose another -o; or --moved if it is the same database at another address",
        )


def _place(source: JsonObject) -> tuple[Any, ...]:
    return source.get("kind"), source.get("url")
