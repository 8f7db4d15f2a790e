"""Serve the page of some stores to browsers on this machine."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trajkit._core.output.console import line, plural, talk
from trajkit._core.output.result import Running
from trajkit._core.process.loop import told_to_end
from trajkit._core.process.memory import at_most, half_of_the_machine
from trajkit.viewer.filter import Filter
from trajkit.viewer.server import PageServer
from trajkit.viewer.shelf import Shelf


class Viewer(Running):
    """A page that is served until it is closed. Also a context manager. Created by `serve`."""

    def __init__(
        self, shelf: Shelf, server: PageServer, *, where: str | None, opened: contextlib.ExitStack
    ) -> None:
        self._shelf = shelf
        self._server = server
        self._where = where
        self._opened = opened
        self._is_closed = threading.Event()

    @property
    def url(self) -> str:
        """Address of the page."""
        return self._server.url + (f"#/?where={quote(self._where, safe='')}" if self._where else "")

    @property
    def n_episodes(self) -> int:
        """Number of episodes that it shows."""
        return sum(one.store.manifest.counts.n_episodes for one in self._shelf.stores)

    def wait(self) -> None:
        """Serve until the process is told to end (SIGTERM or Ctrl-C), or another thread calls `close`."""
        talk(f"{plural(self.n_episodes, 'episode')}; Ctrl-C stops the server")
        with told_to_end(self._is_closed.set):
            # wait in slices: Windows delivers no signal to a thread that waits without a limit
            while not self._is_closed.wait(1.0):
                pass
        self.close()
        talk("ended")

    def close(self) -> None:
        """Stop serving and close the stores. A second call does nothing."""
        self._is_closed.set()
        self._opened.close()

    def to_json(self) -> dict[str, Any]:
        """Return the address of the page and the id of the serving process."""
        return {"url": self.url, "pid": os.getpid()}

    def __str__(self) -> str:
        return line(self.url)

    def __repr__(self) -> str:
        return f"<Viewer {self.url}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f'<a href="{escape(self.url)}" target="_blank" rel="noopener">{escape(self.url)}</a>'


def serve(
    stores: Sequence[str | Path], *, where: str | None = None, port: int = 0, is_opened: bool = False
) -> Viewer:
    """Serve the page of some stores on this machine while this process runs.

    Args:
        stores: Folders, or `sample:NAME`.
        where: Condition for the first view, in the language of `trajkit select`; None for all episodes.
        port: Port on loopback; 0 chooses a free one.
        is_opened: Whether to open the page in a browser.

    Raises:
        StoreError: A store cannot be read.
        QueryError: `where` is not a condition on the episodes of any of the stores.
        RequestError: No store is named, or one is named twice.
        StackError: The port is taken, or may not be used.
    """
    with contextlib.ExitStack() as opened:
        opened.enter_context(at_most(half_of_the_machine()))
        shelf = opened.enter_context(Shelf(stores))
        with shelf.index.held():
            shelf.condition(Filter({}, where=where))
        server = opened.enter_context(PageServer(shelf, port=port))
        viewer = Viewer(shelf, server, where=where, opened=opened.pop_all())
    if is_opened:
        import webbrowser

        webbrowser.open(viewer.url)
    return viewer
