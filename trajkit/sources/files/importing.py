"""Import the records of other tools into a store, a document at a time, and count what is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from trajkit._core.address import is_address, local_copy
from trajkit._core.division import Division, in_shard, own_folder
from trajkit._core.files import refuse_existing
from trajkit._core.outside import regular_file
from trajkit.errors import RequestError
from trajkit.schema import Episode, LineageEntry, Manifest
from trajkit.schema.base import JsonObject
from trajkit.schema.success import parse_success
from trajkit.sources.catalog import recognised, source_named, source_names
from trajkit.sources.files.documents import documents
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.files.intake import Counts, Imported, Intake
from trajkit.sources.files.jobs import trials
from trajkit.sources.files.known import checked_name
from trajkit.sources.files.logs import logs
from trajkit.sources.files.recognise import recognise
from trajkit.sources.files.runs import runs
from trajkit.sources.files.walk import ALL, Share, linked_folders, shares, shown_path
from trajkit.sources.wish import Wish
from trajkit.store.writer import StoreWriter
from trajkit.store.writing.spool import Spool

__all__ = ["Imported", "Wish", "import_files", "read_shards"]


def import_files(
    place: str | Path,
    goal: Path,
    wish: Wish,
    *,
    on_progress: Callable[[str, int, int | None], None] = lambda _what, _done, _total: None,
    read: Callable[[str, str, Wish], Iterator[Found | Unread]] | None = None,
    pulled: JsonObject | None = None,
) -> tuple[Imported, LineageEntry]:
    """Read a file, a folder or a URL into a new store. Memory holds one document, and the ids.

    Args:
        place: What to read.
        goal: The store to write.
        wish: How to read it.
        on_progress: Called with the number of documents seen.
        pulled: Options of the `pull` that brought the files; None for an import.
        read: Reads a place in a format; None for `found_at`, which reads all of it.

    Raises:
        RequestError: There is nothing there, or the format is not known.
        DataError: A document cannot be read, and `skip_bad` is not set; all of them are counted first.
        NothingMatched: No document has an episode.
        ServiceError: A server at a URL cannot be reached, or refuses.
        StoreError: `goal` exists or cannot be written.
    """
    _check(wish)
    refuse_existing(goal)
    path = shown_place(str(place))
    with local_copy(str(place)) as here:
        intake = Intake(format_of(here, wish), wish)
        with Spool(goal.absolute()) as spool:
            _take((read or found_at)(here, intake.name, wish), intake, spool, on_progress)
            intake.finish(path)
            entry = intake.entry(path, pulled)
            manifest = _write(spool, goal, intake, path, (entry,))
    return intake.imported(path, goal, manifest), entry


def import_share(task: tuple[str, Path, Wish, Share]) -> tuple[Counts, Path | None]:
    """Read one shard of a path or URL, of a known format, and write its store into a folder.

    `read_shards` decides for all shards together whether documents may be left out, and whether all requested
    names exist.

    Returns:
        The counts, and the store; None without an episode, or with a document that may not be left out.
    """
    place, folder, wish, share = task
    intake = Intake(format_of(place, wish), wish)
    goal = own_folder(folder, f"shard-{share.number}") / "store"
    with Spool(goal) as spool:
        _take(found_at(place, intake.name, wish, share), intake, spool)
        if intake.is_kept:
            _write(spool, goal, intake, shown_place(place), ())
    return intake.counts, goal if intake.is_kept else None


def read_shards(place: str, wish: Wish, division: Division) -> tuple[Intake, list[Path]]:
    """Read a path or URL in several processes.

    Args:
        place: What to read.
        wish: How to read it.
        division: The processes.

    Returns:
        The counts, and the stores of the shards with episodes; an id may be in two of them.

    Raises:
        RequestError: The place is an address, which only one process reads.
        DataError: A document cannot be read, and `skip_bad` is not set; all of them are counted first.
        NothingMatched: No document has an episode.
    """
    if is_address(place):
        raise RequestError(f"{shown_place(place)} is imported in one piece", hint="leave out --on")
    _check(wish)
    name = format_of(place, wish)
    known = wish.model_copy(update={"format": name})
    tasks = [(place, division.folder, known, share) for share in shares(place, division.n)]
    intake = Intake(name, wish)
    found = division.map(import_share, tasks)
    for index, (counts, _) in enumerate(found):
        if not wish.skip_bad:  # a problem becomes an error of its shard
            counts.shown = [in_shard(index, len(found), each) for each in counts.shown]
        intake.counts.add(counts)
    intake.finish(shown_place(place))
    return intake, [store for _, store in found if store is not None]


def _check(wish: Wish) -> None:
    """Check the rule of success before anything is read."""
    if wish.success is not None:
        parse_success(wish.success)


def format_of(place: str, wish: Wish) -> str:
    """Return the format or source of a path or URL: that of the wish, else the one that it looks like.

    Raises:
        RequestError: There is nothing there, or the format is not known.
    """
    if not is_url(place):
        if not Path(place).exists():
            raise RequestError(f"there is no file or folder {place}")
        if not Path(place).is_dir():
            regular_file(Path(place), error=RequestError)
    return format_at(place) if wish.format is None else checked_name(wish.format)


def _take(
    all_found: Iterator[Found | Unread],
    intake: Intake,
    spool: Spool,
    on_progress: Callable[[str, int, int | None], None] = lambda _what, _done, _total: None,
) -> None:
    for n_seen, found in enumerate(all_found, 1):
        on_progress(f"reading {intake.name}", n_seen, None)
        for taken in intake.take(found):
            if isinstance(taken, Episode):
                spool.add(taken)
            else:
                spool.add_rows(taken)


def _write(spool: Spool, goal: Path, intake: Intake, path: str, lineage: Sequence[LineageEntry]) -> Manifest:
    facts: JsonObject = {"format": intake.name, "path": path}
    with StoreWriter(goal, kind="import", metrics=spool.metrics(), source=facts) as writer:
        for part in spool.parts(spool.metrics()):
            writer.add(spool.connection, **part)
        return writer.finish(lineage=lineage, connection=spool.connection)


def is_url(place: str) -> bool:
    """Whether a place is a URL and not a path."""
    return "://" in place


def shown_place(place: str) -> str:
    """Return a path, or a URL without user, password and query, which may be secret."""
    if not is_url(place):
        return place
    parts = urlsplit(place)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def format_at(place: str) -> str:
    """Return the name of the source or format of a path or URL.

    Raises:
        RequestError: It is unknown.
    """
    found = recognised(place)
    if found is not None:
        return found
    if is_url(place):
        raise RequestError(
            f"unknown service at {shown_place(place)}",
            hint=f"name the source with --from: {', '.join(source_names())}",
        )
    return recognise(Path(place))


def found_at(place: str, name: str, wish: Wish, share: Share = ALL) -> Iterator[Found | Unread]:
    """Read everything at a path or URL, of a format or source, or one shard of it."""
    if name in source_names():
        yield from _shared(source_named(name).read(place, wish), share)
        return
    path = Path(place)
    for each in linked_folders(path) if path.is_dir() else ():
        if share.has_whole(shown_path(each, path)):
            yield Found(shown_path(each, path), aside="a link to a folder: not followed")
    yield from _documents(path, name, wish, share)


def _documents(path: Path, name: str, wish: Wish, share: Share) -> Iterator[Found | Unread]:
    match name:
        case "inspect":
            return _shared(logs(path, include_errored=wish.include_errored), share)
        case "balrog":
            return _shared(runs(path), share)
        case "harbor" | "benchflow":
            return _shared(trials(path, name, include_errored=wish.include_errored), share)
        case _:
            return documents(path, name, share)


def _shared(found: Iterator[Found | Unread], share: Share) -> Iterator[Found | Unread]:
    """Return the documents of a shard, if they cannot be divided before they are read."""
    if share.n == 1:
        return found
    return (
        each
        for each in found
        if (share.number == 1 if isinstance(each, Unread) else share.has_whole(each.place))
    )
