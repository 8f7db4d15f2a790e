"""`trajkit archive`: a whole TensorZero database as a folder that needs none."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._core.console import Cell, Meter, count, plural, result, result_json, size, table, talk
from trajkit._core.settings import project
from trajkit.cli.server_options import access_of, server_options
from trajkit.errors import RequestError, TrajkitError

if TYPE_CHECKING:
    from trajkit.sources.tensorzero.archive.copying import Archived
    from trajkit.sources.tensorzero.archive.origin import Origin
    from trajkit.sources.tensorzero.archive.verify import DayCheck, Verification

_EPILOG = """\
Inferences, model calls, feedback, configurations with their templates, workflow evaluations and datasets, as
they are stored: `trajkit export --source DIR` then works without the database. The same command again brings
what is new; after a kill or a failure it goes on. What the database loses later stays in the archive. Without
--source it reads the database that trajkit.toml names, else TENSORZERO_CLICKHOUSE_URL or
TENSORZERO_POSTGRES_URL, else the local stack.
"""

_VERIFY_EPILOG = """\
Every file is read and compared with its checksum. Then each table's rows are counted per day, and all that
they hold is added up, on both sides. Rows that came after the archive's last run are counted and are no
fault; neither are rows that the database has lost since. Exit code 1 when a row is missing or differs.
"""

_MOST_DAYS = 20

_source = click.option("--source", metavar="URL", help="The database's URL with user and password.")
_moved = click.option(
    "--moved", "is_moved", is_flag=True, help="It is the archive's database, at another address."
)


@click.group(invoke_without_command=True, epilog=_EPILOG)
@_source
@click.option("-o", "--output", "goal", type=click.Path(path_type=Path), help="The archive's folder.")
@_moved
@server_options
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
@click.pass_context
def archive(
    ctx: click.Context, /, source: str | None, goal: Path | None, is_moved: bool, as_json: bool, **asked: Any
) -> None:
    """Copy a TensorZero database into a folder of Parquet.

    \b
    trajkit archive -o archive
    trajkit archive verify archive
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    if ctx.invoked_subcommand is not None:
        return
    if goal is None:
        raise RequestError("no folder for the archive", hint="-o archive")
    from trajkit.sources.tensorzero.archive.copying import archive as bring

    with contextlib.closing(_connect(source, access_of(asked))) as origin, Meter() as meter:
        archived = bring(origin, goal, is_moved=is_moved, on_progress=meter.show)
    if as_json:
        result_json(_as_json(archived, goal))
        return
    _print_archived(archived, goal)


@archive.command(epilog=_VERIFY_EPILOG)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@_source
@_moved
@server_options
@click.option("--json", "as_json", is_flag=True, help="Print every day of every table as JSON.")
def verify(folder: Path, source: str | None, is_moved: bool, as_json: bool, **asked: Any) -> int:
    """Prove that an archive has all that its database has."""
    from trajkit.sources.tensorzero.archive.manifest import read_manifest
    from trajkit.sources.tensorzero.archive.verify import verify as compare

    read_manifest(folder)  # a folder that is none needs no database to say so
    with contextlib.closing(_connect(source, access_of(asked))) as origin, Meter() as meter:
        found = compare(origin, folder, is_moved=is_moved, on_progress=meter.show)
    if as_json:
        result_json(_verification_json(found, folder))
    else:
        _print_verification(found, folder)
    return 0 if found.is_complete else TrajkitError.exit_code


def _connect(source: str | None, access: Any) -> Origin:
    from trajkit.sources.open import find_source
    from trajkit.sources.tensorzero.archive.connecting import connected

    location = find_source(source, project())
    origin = connected(location, access)
    talk(f"reading {origin.describe().get('url')} (from {location.named_by})")
    return origin


def _print_archived(archived: Archived, goal: Path) -> None:
    if archived.was_interrupted:
        talk("an earlier run had not finished: this one went on from there")
    parts = archived.manifest.parts
    rows = []
    for name, n_new in archived.n_new.items():
        mine = [part for part in parts if part.table == name]
        n_rows, n_bytes = sum(part.n_rows for part in mine), sum(part.n_bytes for part in mine)
        if n_rows:
            rows.append((name, count(n_new), count(n_rows), count(len({p.day for p in mine})), size(n_bytes)))
    numbers = [Cell(heading, is_number=True) for heading in ("new", "rows", "days", "size")]
    table([Cell("table"), *numbers], rows)
    n_rows, n_bytes = sum(part.n_rows for part in parts), sum(part.n_bytes for part in parts)
    result(f"{goal}  {plural(n_rows, 'row')}  {size(n_bytes)}  {plural(len(parts), 'file')}")


def _as_json(archived: Archived, goal: Path) -> dict[str, Any]:
    manifest = archived.manifest
    return {
        "archive": str(goal),
        "as_of": manifest.as_of.isoformat(),
        "n_new": archived.n_new,
        "n_rows": {name: sum(part.n_rows for part in manifest.parts_of(name)) for name in archived.n_new},
        "n_bytes": sum(part.n_bytes for part in manifest.parts),
    }


def _print_verification(found: Verification, folder: Path) -> None:
    by_table: dict[str, list[DayCheck]] = {}
    for day in found.days:
        by_table.setdefault(day.table, []).append(day)
    table(
        [
            Cell("table"),
            *(
                Cell(heading, is_number=True)
                for heading in ("days", "database", "archive", "missing", "different", "newer", "gone")
            ),
        ],
        [
            (
                name,
                count(len(days)),
                *(
                    count(sum(getattr(day, field) for day in days))
                    for field in ("n_there", "n_here", "n_missing", "n_different", "n_newer", "n_gone")
                ),
            )
            for name, days in by_table.items()
        ],
    )
    wrong = [day for day in found.days if not day.is_complete]
    for day in wrong[:_MOST_DAYS]:
        result(_day_line(day))
    if len(wrong) > _MOST_DAYS:
        result(f"… and {plural(len(wrong) - _MOST_DAYS, 'day')} more (--json lists all)")
    if wrong:
        result(f"{folder} is not complete: `trajkit archive -o {folder}` brings what is missing")
    else:
        n_newer = sum(day.n_newer for day in found.days)
        newer = f" but {plural(n_newer, 'row')} that came later" if n_newer else ""
        result(f"{folder} is complete: it has every row of the database{newer}")


def _day_line(day: DayCheck) -> str:
    from trajkit.sources.tensorzero.archive.layout import day_name

    said = [
        f"{count(n)} {word}" for n, word in ((day.n_missing, "missing"), (day.n_different, "different")) if n
    ]
    return f"{day.table} {day_name(day.day)}: {', '.join(said)}, such as {day.example}"


def _verification_json(found: Verification, folder: Path) -> dict[str, Any]:
    from trajkit.sources.tensorzero.archive.layout import day_name

    return {
        "archive": str(folder),
        "is_complete": found.is_complete,
        "days": [{**day._asdict(), "day": day_name(day.day)} for day in found.days],
    }
