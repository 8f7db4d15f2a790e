"""Import: other people's files as a store, a document at a time, with a tally of what was not taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from trajkit._core.address import local_copy
from trajkit._core.files import refuse_existing
from trajkit._core.outside import regular_file
from trajkit.errors import RequestError
from trajkit.schema import Episode, LineageEntry
from trajkit.schema.base import JsonObject
from trajkit.schema.success import Success
from trajkit.sources.catalog import recognised, source_named, source_names
from trajkit.sources.files.documents import documents
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.files.intake import Imported, Intake
from trajkit.sources.files.jobs import benchflow_rollouts, harbor_trials
from trajkit.sources.files.known import checked_name
from trajkit.sources.files.logs import logs
from trajkit.sources.files.recognise import recognise
from trajkit.sources.files.runs import runs
from trajkit.sources.files.walk import linked_folders, shown_path
from trajkit.sources.wish import Wish
from trajkit.store.spool import Spool
from trajkit.store.writer import StoreWriter

__all__ = ["Imported", "Wish", "import_files"]


def import_files(
    place: str | Path,
    goal: Path,
    wish: Wish,
    *,
    success: Success | None = None,
    on_progress: Callable[[str, int, int | None], None] = lambda _what, _done, _total: None,
    read: Callable[[str, str, Wish], Iterator[Found | Unread]] | None = None,
) -> tuple[Imported, LineageEntry]:
    """Read a file, a folder or what is at a URL into a new store. Memory holds one document, and the ids.

    Args:
        place: What to read.
        goal: The store that exists afterwards.
        wish: How to read it.
        success: `wish.success`, taken apart.
        on_progress: Told how many documents were seen.
        read: Reads what is at a place, of a format; None for `found_at`, which reads all of it.

    Raises:
        RequestError: There is nothing there, or the format is not known.
        DataError: A document cannot be read, and `skip_bad` is not set; all of them are counted first.
        NothingMatched: No document has an episode.
        ServiceError: A server at a URL cannot be reached, or refuses.
        StoreError: `goal` exists or cannot be written.
    """
    refuse_existing(goal)
    path = shown_place(str(place))
    with local_copy(str(place)) as here:
        if not is_url(here):
            if not Path(here).exists():
                raise RequestError(f"there is no file or folder {path}")
            if not Path(here).is_dir():
                regular_file(Path(here), error=RequestError)
        name = format_at(here) if wish.format is None else checked_name(wish.format)
        intake = Intake(name, wish, success)
        with Spool(goal.absolute()) as spool:
            for n_seen, found in enumerate((read or found_at)(here, name, wish), 1):
                on_progress(f"reading {name}", n_seen, None)
                for taken in intake.take(found):
                    if isinstance(taken, Episode):
                        spool.add(taken)
                    else:
                        spool.add_rows(taken)
            intake.finish(path)
            entry = intake.entry(path)
            facts: JsonObject = {"format": name, "path": path}
            with StoreWriter(goal, kind="import", metrics=spool.metrics(), source=facts) as writer:
                for part in spool.parts(spool.metrics()):
                    writer.add(spool.connection, **part._asdict())
                manifest = writer.finish(lineage=(entry,))
    return intake.imported(path, goal, manifest), entry


def is_url(place: str) -> bool:
    """Whether a place is a URL and not a path."""
    return "://" in place


def shown_place(place: str) -> str:
    """A path, or a URL without the user, the password and the query, which may be secret."""
    if not is_url(place):
        return place
    parts = urlsplit(place)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def format_at(place: str) -> str:
    """The name of the source or format of what is at a path or URL.

    Raises:
        RequestError: It is not known.
    """
    found = recognised(place)
    if found is not None:
        return found
    if is_url(place):
        raise RequestError(
            f"it is not known what answers at {shown_place(place)}",
            hint=f"say which source it is with --from: {', '.join(source_names())}",
        )
    return recognise(Path(place))


def found_at(place: str, name: str, wish: Wish) -> Iterator[Found | Unread]:
    """Read everything at a path or URL, of a format or source."""
    if name in source_names():
        yield from source_named(name).read(place, wish)
        return
    path = Path(place)
    for each in linked_folders(path) if path.is_dir() else ():
        yield Found(shown_path(each, path), aside="a link to a folder: not followed")
    yield from _documents(path, name, wish)


def _documents(path: Path, name: str, wish: Wish) -> Iterator[Found | Unread]:
    match name:
        case "inspect":
            return logs(path, include_errored=wish.include_errored)
        case "balrog":
            return runs(path)
        case "harbor":
            return harbor_trials(path, include_errored=wish.include_errored)
        case "benchflow":
            return benchflow_rollouts(path, include_errored=wish.include_errored)
        case _:
            return documents(path, name)
