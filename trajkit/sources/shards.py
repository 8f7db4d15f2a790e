"""Export the shards of a database in several processes, all as of the same moment."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from trajkit._core.division import Division, own_folder
from trajkit._core.files import write_text
from trajkit._core.settings import project
from trajkit.errors import NothingMatched
from trajkit.schema import Model
from trajkit.schema.base import UtcTime
from trajkit.sources.access import Access
from trajkit.sources.open import Location, export_from, find_source
from trajkit.sources.request import ExportRequest, Shard, Tally
from trajkit.sources.tensorzero.export.after import earlier

_MOMENT = "export.json"


class Task(NamedTuple):
    """One shard of an export."""

    source: str | None
    """The source as it was given; None for that of the settings or the environment of a worker."""
    request: ExportRequest
    """The request for this shard."""
    after: Path | None
    """Path of the earlier store, which a request does not record."""
    access: Access
    """Limits of queries on the server."""
    folder: Path
    """Path of the shard's store."""


class Found(NamedTuple):
    """The result of one shard."""

    tally: Tally
    store: Path | None
    """Its store; None without an episode."""


class _Begun(Model):
    """A started export, and the as-of time of its shards."""

    request: ExportRequest
    as_of: UtcTime


def export_shards(
    location: Location, request: ExportRequest, division: Division, access: Access
) -> tuple[list[Tally], list[Path]]:
    """Export every shard into a store of its own.

    Args:
        location: A database or an archive.
        request: The request for all shards.
        division: The processes.
        access: Limits of queries on the server.

    Returns:
        The tally of every shard, and the stores of those with episodes.
    """
    source = location.value.get_secret_value() if location.named_by == "--source" else None
    as_of = request.as_of or _moment(request, division.folder)
    tasks = [
        Task(
            source,
            request.model_copy(
                update={"as_of": as_of, "after": None, "shard": Shard(number=number, n=division.n)}
            ),
            None if request.after is None else request.after.path,
            access,
            division.folder,
        )
        for number in range(1, division.n + 1)
    ]
    found = division.map(export_shard, tasks)
    return [each.tally for each in found], [each.store for each in found if each.store is not None]


def export_shard(task: Task) -> Found:
    """Export one shard."""
    request = task.request
    if task.after is not None:
        request = request.model_copy(update={"after": earlier(str(task.after))})
    assert request.shard is not None
    goal = own_folder(task.folder, f"shard-{request.shard.number}") / "store"
    location = find_source(task.source, project())
    try:
        tally, _ = export_from(location, request, goal, on_progress=lambda *_: None, access=task.access)
    except NothingMatched as error:
        if not isinstance(error.result, Tally):
            raise
        return Found(error.result, None)
    return Found(tally, goal)


def _moment(request: ExportRequest, folder: Path) -> datetime:
    """Return the as-of time of all shards: now, or that of the same export when it was started before."""
    path = folder / _MOMENT
    if path.exists():
        begun = _Begun.model_validate_json(path.read_text(encoding="utf-8"))
        if begun.request.model_dump(mode="json") == request.model_dump(mode="json"):
            return begun.as_of
    begun = _Begun(request=request, as_of=datetime.now(UTC))
    write_text(path, begun.model_dump_json())
    return begun.as_of
