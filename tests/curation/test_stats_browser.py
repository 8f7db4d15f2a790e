"""The page of `trajkit stats --html` in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import DESKTOP, PHONE, browser, opened
from tests.matrix import daily
from trajkit.curation.statistics.page import page
from trajkit.curation.statistics.stats import stats


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "stats.html"
    path.write_text(page(stats("sample:babyai")), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("size", "scheme"),
    daily([(PHONE, "light"), (DESKTOP, "dark")], 1),
    ids=["phone by day", "desktop by night"],
)
def test_the_page_draws_every_chart_and_asks_for_nothing(
    chromium: Any, written: Path, size: dict[str, int], scheme: str
) -> None:
    with opened(chromium, written, size=size, scheme=scheme) as found:
        boxes = found.page.eval_on_selector_all(
            "svg", "charts => charts.map(c => [c.getBoundingClientRect().width, c.getBBox().height])"
        )
        assert len(boxes) > 5
        assert all(width > 100 and height > 20 for width, height in boxes)
        assert not found.is_wider_than_its_window()
        ink, paper = found.page.evaluate(
            "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
        )
        assert (_light(paper) > 200) == (scheme == "light")
        assert abs(_light(ink) - _light(paper)) > 125  # the contrast that people need, more or less
    assert found.said == []
    assert found.asked == []


def test_every_chart_has_its_numbers(chromium: Any, written: Path) -> None:
    with opened(chromium, written, size=DESKTOP) as found:
        for details in found.page.query_selector_all("details"):
            details.query_selector("summary").click()
            assert details.query_selector("table td").is_visible()
        assert found.page.query_selector_all("details")


def _light(color: str) -> float:
    numbers = [float(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")]
    return sum(numbers) / 3
