"""A browser and a server for each module that looks at the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser import DESKTOP, Opened, browser
from tests.viewer.page_episodes import episodes, many
from trajkit.store.writer import write_episodes
from trajkit.viewer.server import PageServer
from trajkit.viewer.shelf import Shelf


def shown(found: Opened, place: str) -> None:
    """Wait until the page shows this place."""
    found.page.wait_for_function(
        "place => document.getElementById('main').dataset.shown === place", arg=place
    )


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture(scope="session")
def page_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The episodes of `page_episodes`."""
    path = tmp_path_factory.mktemp("viewed") / "made"
    write_episodes(path, episodes(), kind="test")
    return path


@pytest.fixture(scope="session")
def many_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More episodes than a list shows at once."""
    path = tmp_path_factory.mktemp("viewed") / "many"
    write_episodes(path, many(), kind="test")
    return path


@pytest.fixture(scope="module")
def address(page_store: Path, many_store: Path) -> Iterator[str]:
    """Of a page that shows three stores: made, many, and the sample."""
    with (
        Shelf([str(page_store), str(many_store), "sample:babyai"]) as shelf,
        PageServer(shelf, port=0) as server,
    ):
        yield server.url


@pytest.fixture(scope="module")
def visit(chromium: Any, address: str) -> Callable[..., AbstractContextManager[Opened]]:
    """Open a place of the page; it is there when the block begins.

    Visits take turns in one window, because each new window starts a process.
    """
    page = chromium.new_context().new_page()
    devtools = page.context.new_cdp_session(page)

    @contextmanager
    def go(place: str = "#/", *, size: dict[str, int] = DESKTOP, scheme: str = "light") -> Iterator[Opened]:
        page.goto("about:blank")  # else another place of the page is shown without loading it
        kept = {"origin": address.rstrip("/"), "storageTypes": "local_storage"}
        devtools.send("Storage.clearDataForOrigin", kept)
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme, reduced_motion="null")
        with Opened(page).at(address + place) as found:
            shown(found, place)
            yield found

    return go
