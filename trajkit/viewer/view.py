"""Look at stores in a browser of this machine."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, overload
from urllib.parse import quote

from trajkit.errors import RequestError
from trajkit.viewer.asked import Asked
from trajkit.viewer.server import PageServer
from trajkit.viewer.shelf import Shelf
from trajkit.viewer.snapshot import LIMIT, Snapshot, write_snapshot


class Viewer:
    """A page that is being served, until it is closed. Also a context manager. Made by `view`."""

    def __init__(self, shelf: Shelf, server: PageServer, *, where: str | None) -> None:
        self._shelf = shelf
        self._server = server
        self._where = where
        self._is_closed = threading.Event()

    @property
    def url(self) -> str:
        """Where the page is."""
        return self._server.url + (f"#/?where={quote(self._where, safe='')}" if self._where else "")

    @property
    def n_episodes(self) -> int:
        """Episodes that it shows."""
        return sum(one.store.manifest.counts.n_episodes for one in self._shelf.stores)

    def wait(self) -> None:
        """Serve until the process is told to end (SIGTERM or Ctrl-C), or another thread calls `close`."""
        with _told_to_end(self._is_closed):
            # in slices: Windows delivers no signal to a thread that waits for ever
            while not self._is_closed.wait(1.0):
                pass
        self.close()

    def close(self) -> None:
        """Stop serving and let go of the stores. A second call does nothing."""
        self._is_closed.set()
        self._server.close()
        self._shelf.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Viewer {self.url}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f'<a href="{escape(self.url)}" target="_blank" rel="noopener">{escape(self.url)}</a>'


@overload
def view(
    *stores: str | Path, where: str | None = None, port: int = 0, browser: bool = False, html: None = None
) -> Viewer: ...


@overload
def view(
    *stores: str | Path, where: str | None = None, html: str | Path, limit: int | None = None
) -> Snapshot: ...


def view(
    *stores: str | Path,
    where: str | None = None,
    port: int = 0,
    browser: bool = False,
    html: str | Path | None = None,
    limit: int | None = None,
) -> Viewer | Snapshot:
    """Show the episodes of some stores as a page; it is served while this process goes on.

    Args:
        stores: Folders, or `sample:NAME`; such as those of a model before and after its training.
        where: Which episodes the page shows first, and which are written, in the words of `trajkit select`;
            None for all.
        port: Port on loopback; 0 takes a free one.
        browser: Whether to open it in a browser.
        html: Write the page with its first episodes into this file, and serve nothing.
        limit: At most so many episodes in the file; None for 200.

    Returns:
        What serves the page, or what was written.

    Raises:
        StoreError: A store cannot be read, or `html` exists.
        QueryError: `where` is not a condition on the episodes of any of the stores.
        NothingMatched: No episode is chosen for the file.
        RequestError: No store is named, one is named twice, or an option has no meaning here.
        StackError: The port is taken, or may not be used.

    Example:
        >>> with view("sample:babyai") as viewer:
        ...     print(viewer.n_episodes, viewer.url.startswith("http://127.0.0.1:"))
        55 True
    """
    if html is not None:
        with Shelf(stores) as shelf:
            return write_snapshot(shelf, Path(html), where=where, limit=LIMIT if limit is None else limit)
    if limit is not None:
        raise RequestError("a limit is for a file: the page itself shows all", hint="name one with html")
    with contextlib.ExitStack() as opened:
        shelf = opened.enter_context(Shelf(stores))
        with shelf.index.held():
            shelf.condition(Asked({}, where=where))
        server = opened.enter_context(PageServer(shelf, port=port))
        viewer = Viewer(shelf, server, where=where)
        if browser:
            import webbrowser

            webbrowser.open(viewer.url)
        opened.pop_all()
        return viewer


@contextlib.contextmanager
def _told_to_end(is_ended: threading.Event) -> Iterator[None]:
    """SIGTERM and Ctrl-C end softly in the block; the second of them does not wait."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}

    def end(*_: object) -> None:
        is_ended.set()
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
