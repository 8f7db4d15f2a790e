"""Import: other people's files as a store, a document at a time, with a tally of what was not taken."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

from trajkit._core.files import refuse_existing
from trajkit._core.outside import regular_file
from trajkit.errors import RequestError
from trajkit.schema import Episode, LineageEntry
from trajkit.schema.base import JsonObject
from trajkit.schema.success import Success
from trajkit.sources.files.documents import documents
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.files.intake import Imported, Intake, Wish
from trajkit.sources.files.jobs import benchflow_rollouts, harbor_trials
from trajkit.sources.files.known import checked_name
from trajkit.sources.files.logs import logs
from trajkit.sources.files.recognise import recognise
from trajkit.sources.files.runs import runs
from trajkit.sources.files.walk import linked_folders, shown_path
from trajkit.store.spool import Spool
from trajkit.store.writer import StoreWriter

__all__ = ["Imported", "Wish", "import_files"]


def import_files(
    path: Path,
    goal: Path,
    wish: Wish,
    *,
    success: Success | None = None,
    on_progress: Callable[[str, int, int | None], None] = lambda _what, _done, _total: None,
) -> tuple[Imported, LineageEntry]:
    """Read a file or a folder into a new store. Memory holds one document, and the ids.

    Args:
        path: What to read.
        goal: The store that exists afterwards.
        wish: How to read it.
        success: `wish.success`, taken apart.
        on_progress: Told how many documents were seen.

    Raises:
        RequestError: There is nothing there, or the format is not known.
        DataError: A document cannot be read, and `skip_bad` is not set; all of them are counted first.
        NothingMatched: No document has an episode.
        StoreError: `goal` exists or cannot be written.
    """
    refuse_existing(goal)
    if not path.exists():
        raise RequestError(f"there is no file or folder {path}")
    if not path.is_dir():
        regular_file(path, error=RequestError)
    name = recognise(path) if wish.format is None else checked_name(wish.format)
    intake = Intake(name, wish, success)
    with Spool(goal.absolute()) as spool:
        linked = linked_folders(path) if path.is_dir() else ()
        aside = (Found(shown_path(each, path), aside="a link to a folder: not followed") for each in linked)
        for n_seen, found in enumerate(itertools.chain(aside, _found(path, name, wish)), 1):
            on_progress(f"reading {name}", n_seen, None)
            for taken in intake.take(found):
                if isinstance(taken, Episode):
                    spool.add(taken)
                else:
                    spool.add_rows(taken)
        intake.finish(path)
        entry = intake.entry(path)
        facts: JsonObject = {"format": name, "path": str(path)}
        with StoreWriter(goal, kind="import", metrics=spool.metrics(), source=facts) as writer:
            for part in spool.parts(spool.metrics()):
                writer.add(spool.connection, **part._asdict())
            manifest = writer.finish(lineage=(entry,))
    return intake.imported(path, goal, manifest), entry


def _found(path: Path, name: str, wish: Wish) -> Iterator[Found | Unread]:
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
