"""The page as one file, opened from disk without a server: it reads and filters as the served one does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import DESKTOP, Opened, opened
from tests.viewer.conftest import shown
from trajkit.viewer.shelf import Shelf
from trajkit.viewer.snapshot import write_snapshot


@pytest.fixture(scope="module")
def file(page_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    goal = tmp_path_factory.mktemp("file") / "page.html"
    with Shelf([str(page_store), "sample:babyai"]) as shelf:
        write_snapshot(shelf, goal, limit=12)
    return goal


@pytest.fixture
def found(chromium: Any, file: Path) -> Iterator[Opened]:
    """The file, opened; what it said and asked for is looked at afterwards."""
    with opened(chromium, file, size=DESKTOP) as found:
        shown(found, "#/")
        yield found
        assert found.page.evaluate("window.ran") is None
    assert found.said == []
    assert [url for url in found.asked if not url.startswith(("data:,", file.as_uri()))] == []


def _go(found: Opened, place: str) -> None:
    found.page.evaluate("place => { location.hash = place; }", place)
    shown(found, place)


def test_a_file_filters_sorts_and_searches(found: Opened) -> None:
    page = found.page
    assert page.inner_text("h1") == "12 of 63 episodes"
    page.locator("[data-chip='task=goto']").click()
    page.wait_for_selector("[data-chip='task=goto'][aria-pressed='true']")
    n_goto = page.locator("a.title").count()
    assert 4 <= n_goto < 12
    page.get_by_label("steps: at least", exact=True).fill("20")
    page.get_by_label("steps: at least", exact=True).press("Enter")
    page.wait_for_function("n => document.querySelectorAll('a.title').length < n", arg=n_goto)
    steps = [int(text) for text in page.locator("td.of-n_steps .bar-number").all_inner_texts()]
    assert steps
    assert min(steps) >= 20
    assert page.get_by_label("Where").count() == 0
    _go(found, "#/?sort=n_steps&descending=1")
    assert page.locator("td.of-n_steps .bar-number").first.inner_text() == "450"
    _go(found, "#/?q=shop")
    assert page.inner_text(".world") == "shop · seed 1"


def test_a_file_shows_episodes_prompts_and_pairs(found: Opened) -> None:
    page = found.page
    _go(found, "#/episode/0/before-7/step/2")
    page.get_by_role("button", name="Difference").click()
    page.locator("#step-2 ins").wait_for()
    assert "a wall 18 steps forward" in page.inner_text("#step-2 ins")
    page.keyboard.press("j")
    page.wait_for_function("() => location.hash === '#/episode/0/before-7/step/3'")
    _go(found, "#/compare/0/before-7/0/after-7")
    assert "First difference: step 9" in page.inner_text(".verdict")
    _go(found, "#/episode/0/long/step/420")
    assert page.locator("#step-420").is_visible()


@pytest.mark.full
def test_a_file_draws_its_charts(found: Opened) -> None:
    _go(found, "#/charts?task=goto")
    found.page.wait_for_selector("figure svg")
    tasks = found.page.locator("figure", has_text="Outcomes by task")
    tasks.locator("summary").click()
    assert tasks.locator("tbody tr").count() == 1
    assert "to be learned" in found.page.inner_text(".charts")


@pytest.mark.full
def test_a_long_text_in_a_file_ends_where_the_file_does(found: Opened) -> None:
    page = found.page
    page.get_by_label("Search").fill("hostile")
    page.wait_for_function("() => document.querySelectorAll('a.title').length === 1")
    page.locator("a.title").click()
    step = page.locator("#step-1")
    step.wait_for()
    more = step.locator(".user").get_by_role("button", name="Show more")
    for _ in range(10):
        if more.count() == 0:
            break
        more.click()
    assert "more characters are in the store, not in this file" in step.locator(".user").inner_text()
