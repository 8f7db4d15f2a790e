"""View the episodes of stores in a browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trajkit._core.output import console
from trajkit.commands.options.types import Count, File, Option, StoreLike
from trajkit.commands.place import store_paths
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.viewer.snapshot import Snapshot
    from trajkit.viewer.viewer import Viewer


def view(
    *stores: Annotated[StoreLike, Option(metavar="[STORE]...")],
    where: Annotated[str | None, Option(metavar="CONDITION")] = None,
    port: Annotated[int | None, Option(least=0, most=65535)] = None,
    browser: bool | None = None,
    html: File = None,
    limit: Count | None = None,
) -> Viewer | Snapshot:
    """View the episodes of stores in a browser, until Ctrl-C.

    Several stores are shown together, such as those of a model before and after its training. Without a store
    the page shows the last store written here. The page is served to this machine only; in Python until the
    process ends or the viewer is closed. With --html it is a file instead, with its first episodes inside.

    Args:
        stores: Folders, or `sample:NAME`.
        where: Show these episodes first, as in `select`; with --html, write these.
        port: Port on loopback. Default: a free one.
        browser: Open the page in a browser. Default: from a terminal of a desktop, and never in Python.
        html: Write the page as one file.
        limit: Maximum episodes in the file. Default: 200.

    Raises:
        StoreError: A store cannot be read, or `html` exists.
        QueryError: `where` is not a condition on the episodes of any of the stores.
        NothingMatched: No episode is chosen for the file.
        RequestError: No store is named and none was written here, one is named twice, or an option has no
            meaning here.
        StackError: The port is taken, or may not be used.

    Example:
        trajkit view sample:babyai
        trajkit view stores/before stores/after --where "task = 'goto'"
        trajkit view stores/tuned --html tuned.html --limit 50
    """
    if html is None and limit is not None:
        raise RequestError("--limit is for --html: the page itself shows all episodes")
    for name, value in (("--port", port), ("--browser", browser)):
        if html is not None and value:
            raise RequestError(f"{name} is for a page that is served, and --html writes a file")
    paths = store_paths(stores or None)
    if html is None:
        from trajkit.viewer.viewer import serve

        is_opened = _has_browser() if browser is None else browser
        return serve(paths, where=where, port=port or 0, is_opened=is_opened)
    from trajkit.viewer.shelf import Shelf
    from trajkit.viewer.snapshot import LIMIT, write_snapshot

    with Shelf(paths) as shelf:
        found = write_snapshot(shelf, Path(html), where=where, limit=LIMIT if limit is None else limit)
    if found.note is not None:
        console.talk(found.note)
    return found


def _has_browser() -> bool:
    """Whether a person sits at a desktop: a browser inside a terminal would take over the terminal."""
    is_graphic = sys.platform in ("darwin", "win32") or any(
        map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))
    )
    return console.is_open() and sys.stdout.isatty() and is_graphic
