"""A real browser, without a window, that reaches no network: pages open in it as they do for people."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def program() -> str:
    """The browser on this machine; the test skips without one."""
    named = os.environ.get("TRAJKIT_TEST_CHROMIUM")
    for name in (named,) if named else _PROGRAMS:
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium: `make system` installs it, or TRAJKIT_TEST_CHROMIUM names it")


class Opened:
    """A page in the browser, and what it said and asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.said: list[str] = []
        """Warnings and errors in the console, and exceptions."""
        self.asked: list[str] = []
        """What it asked for beside itself."""

    @contextmanager
    def at(self, url: str) -> Iterator[Opened]:
        """Go to an address, and listen to the page until the block ends."""
        events = {
            "console": lambda message: (
                message.type in ("warning", "error") and self.said.append(message.text)
            ),
            "pageerror": lambda error: self.said.append(str(error)),
            "request": lambda request: request.url != url and self.asked.append(request.url),
        }
        for name, hear in events.items():
            self.page.on(name, hear)
        self.page.goto(url)
        yield self
        for name, hear in events.items():
            self.page.remove_listener(name, hear)

    def is_wider_than_its_window(self) -> bool:
        """Whether a reader has to scroll sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


@contextmanager
def browser() -> Iterator[Any]:
    """A browser of its own, gone afterwards."""
    from playwright.sync_api import sync_playwright

    # root may not use the sandbox, and containers have little shared memory
    arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program(), args=arguments)
        try:
            yield started
        finally:
            started.close()


@contextmanager
def opened(
    started: Any, address: str | Path, *, size: dict[str, int], scheme: str = "light"
) -> Iterator[Opened]:
    """A page in a window of this size, with nothing kept from any page before."""
    url = address.resolve().as_uri() if isinstance(address, Path) else address
    context = started.new_context(viewport=size, color_scheme=scheme)
    try:
        with Opened(context.new_page()).at(url) as found:
            yield found
    finally:
        context.close()
