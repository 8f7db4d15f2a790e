"""Copy a TensorZero database into a folder, and verify the copy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from trajkit._core.address import place_of
from trajkit._core.output.console import Cell, Meter, count, line, plural, size, table_text, talk
from trajkit._core.output.result import Result
from trajkit._core.settings import project
from trajkit.commands.options.types import Count, File, Option, Output, Place, ServerMemory
from trajkit.commands.play.server import access
from trajkit.errors import RequestError, TrajkitError

if TYPE_CHECKING:
    from trajkit.sources.access import Access
    from trajkit.sources.tensorzero.archive.manifest import ArchiveManifest, ArchivePart
    from trajkit.sources.tensorzero.archive.origin import Origin
    from trajkit.sources.tensorzero.archive.verify import DayCheck

_MOST_DAYS = 20
_Url = Annotated[str | None, Option(metavar="URL")]


@dataclass(frozen=True)
class Archived(Result):
    """What a run added to an archive."""

    path: Path
    """The archive."""
    manifest: ArchiveManifest
    """The files of the archive."""
    n_new: Mapping[str, int]
    """Rows by table that were not in the archive before."""
    was_interrupted: bool
    """Whether it resumed a run that had stopped early."""

    def to_json(self) -> dict[str, Any]:
        """The archive, and its rows by table."""
        return {
            "archive": str(self.path),
            "as_of": self.manifest.as_of.isoformat(),
            "n_new": self.n_new,
            "n_rows": {
                name: sum(part.n_rows for part in self.manifest.parts_of(name)) for name in self.n_new
            },
            "n_bytes": _n_bytes(self.manifest.parts),
        }

    def __str__(self) -> str:
        rows = []
        for name, n_new in self.n_new.items():
            parts = self.manifest.parts_of(name)
            if n_rows := _n_rows(parts):
                n_days = len({part.day for part in parts})
                rows.append((name, count(n_new), count(n_rows), count(n_days), size(_n_bytes(parts))))
        numbers = [Cell(heading, is_number=True) for heading in ("new", "rows", "days", "size")]
        all_parts = self.manifest.parts
        sizes = f"{plural(_n_rows(all_parts), 'row')}  {size(_n_bytes(all_parts))}"
        last = f"{self.path}  {sizes}  {plural(len(all_parts), 'file')}"
        return f"{table_text([Cell('table'), *numbers], rows)}\n{line(last)}"


@dataclass(frozen=True)
class Verified(Result):
    """How an archive compares with its database."""

    path: Path
    """The archive."""
    manifest: ArchiveManifest
    """The files of the archive."""
    days: list[DayCheck]
    """Every day of every table, in order."""

    @property
    def is_complete(self) -> bool:
        """Whether every day is complete."""
        return all(day.is_complete for day in self.days)

    @property
    def exit_code(self) -> int:
        """1 if a row is missing or differs."""
        return 0 if self.is_complete else TrajkitError.exit_code

    def to_json(self) -> dict[str, Any]:
        """Every day of every table."""
        from trajkit.sources.tensorzero.archive.layout import day_name

        days = [{**day._asdict(), "day": day_name(day.day)} for day in self.days]
        return {"archive": str(self.path), "is_complete": self.is_complete, "days": days}

    def __str__(self) -> str:
        headings = ("days", "database", "archive", "missing", "different", "newer", "gone")
        fields = ("n_there", "n_here", "n_missing", "n_different", "n_newer", "n_gone")
        by_table: dict[str, list[DayCheck]] = {}
        for day in self.days:
            by_table.setdefault(day.table, []).append(day)
        rows = [
            (name, count(len(days)), *(count(sum(getattr(day, field) for day in days)) for field in fields))
            for name, days in by_table.items()
        ]
        table = table_text([Cell("table"), *(Cell(each, is_number=True) for each in headings)], rows)
        return "\n".join((table, *map(line, self._lines())))

    def _lines(self) -> Iterator[str]:
        from trajkit.sources.tensorzero.archive.layout import day_name

        wrong = [day for day in self.days if not day.is_complete]
        for day in wrong[:_MOST_DAYS]:
            counts = ((day.n_missing, "missing"), (day.n_different, "different"))
            found = ", ".join(f"{count(n)} {word}" for n, word in counts if n)
            yield f"{day.table} {day_name(day.day)}: {found}, such as {day.example}"
        if len(wrong) > _MOST_DAYS:
            yield f"… and {plural(len(wrong) - _MOST_DAYS, 'day')} more (--json lists all)"
        if wrong:
            yield f"{self.path} is not complete: `trajkit archive -o {self.path}` fetches what is missing"
        else:
            n_newer = sum(day.n_newer for day in self.days)
            newer = f" but {plural(n_newer, 'row')} that came later" if n_newer else ""
            yield f"{self.path} is complete: it has every row of the database{newer}"


def archive(
    *,
    source: _Url = None,
    output: Output = None,
    moved: bool = False,
    max_threads: Count | None = None,
    max_server_memory: ServerMemory = None,
    ca_cert: File = None,
) -> Archived:
    """Copy a TensorZero database into a folder of Parquet.

    The archive has inferences, model calls, feedback, configurations with their templates, workflow
    evaluations and datasets, as they are stored: `trajkit export --source DIR` then works without the
    database. The same command again fetches new rows and resumes a killed or failed run. Rows that
    the database loses later stay in the archive. Without --source the command reads the database that
    trajkit.toml names, else TENSORZERO_CLICKHOUSE_URL or TENSORZERO_POSTGRES_URL, else the local stack.

    Args:
        source: The database's URL with user and password.
        output: The archive's folder, or its address.
        moved: The database is the archived one, at another address.
        max_threads: Maximum server threads per query; two queries run at a time.
        max_server_memory: Maximum server memory per query, such as 2GB; two queries run at a time.
        ca_cert: CA certificates (PEM) to trust.

    Raises:
        RequestError: No folder is named, or nothing names a database.
        ServiceError: The database cannot be reached.
        StoreError: The folder is not an archive, or is damaged.

    Example:
        trajkit archive -o archive
        trajkit archive verify archive
    """
    if output is None:
        raise RequestError("no folder for the archive", hint="-o archive")
    from trajkit.sources.tensorzero.archive.copying import archive as bring

    path, limits = place_of(output), access(max_threads, max_server_memory, ca_cert)
    with contextlib.closing(_connect(source, limits)) as origin, Meter() as meter:
        archived = bring(origin, path, is_moved=moved, on_progress=meter.show)
    if archived.was_interrupted:
        talk("an earlier run had not finished: this one resumed it")
    return Archived(path, *archived)


def archive_verify(
    folder: Annotated[Place, Option(metavar="DIR", takes_address=True)],
    *,
    source: _Url = None,
    moved: bool = False,
    max_threads: Count | None = None,
    max_server_memory: ServerMemory = None,
    ca_cert: File = None,
) -> Verified:
    """Verify that an archive has all rows of its database.

    Every file is read and compared with its checksum. Then the rows of each table are counted per day, and
    their contents are added up, on both sides. Rows that came after the archive's last run are counted and
    are not a fault; nor are rows that the database has lost since. Exit code 1 when a row is missing or
    differs.

    Args:
        folder: The archive, or its address.
        source: The database's URL with user and password.
        moved: The database is the archived one, at another address.
        max_threads: Maximum server threads per query; two queries run at a time.
        max_server_memory: Maximum server memory per query, such as 2GB; two queries run at a time.
        ca_cert: CA certificates (PEM) to trust.

    Raises:
        ServiceError: The database cannot be reached.
        StoreError: The folder is not an archive, or a file differs from its checksum.
    """
    from trajkit.sources.tensorzero.archive.manifest import read_manifest
    from trajkit.sources.tensorzero.archive.verify import verify

    path = place_of(folder)
    read_manifest(path)  # a folder that is not an archive fails without a database
    limits = access(max_threads, max_server_memory, ca_cert)
    with contextlib.closing(_connect(source, limits)) as origin, Meter() as meter:
        return Verified(path, *verify(origin, path, is_moved=moved, on_progress=meter.show))


def _n_rows(parts: Iterable[ArchivePart]) -> int:
    return sum(part.n_rows for part in parts)


def _n_bytes(parts: Iterable[ArchivePart]) -> int:
    return sum(part.n_bytes for part in parts)


def _connect(source: str | None, limits: Access) -> Origin:
    from trajkit.sources.open import find_source
    from trajkit.sources.tensorzero.archive.origin import origin_of

    location = find_source(source, project())
    url = location.value.get_secret_value()
    if not location.is_database:
        raise RequestError(
            f"{url} is not a database (from {location.named_by})",
            hint="--source takes a URL such as http://user:password@host:8123/tensorzero",
        )
    origin = origin_of(url, limits)
    talk(f"reading {origin.describe().get('url')} (from {location.named_by})")
    return origin
