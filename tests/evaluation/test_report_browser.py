"""The page of `trajkit report` in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import DESKTOP, PHONE, browser, opened
from tests.evaluation.conftest import make_played
from tests.matrix import daily
from trajkit.evaluation.report import report
from trajkit.evaluation.reports.model import Training

_ALL_DRAWN = "document.querySelectorAll('.chart svg').length == document.querySelectorAll('.chart').length"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def written(two_sides: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {
        name: Training(model=name, n_episodes=n, n_learned=9 * n) for name, n in (("base", 5), ("tuned", 80))
    }
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report(two_sides, resamples=500, trainings=sizes).page(), encoding="utf-8")
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
        found.page.wait_for_function(_ALL_DRAWN)
        boxes = found.page.eval_on_selector_all(
            ".chart svg", "charts => charts.map(c => [c.getBoundingClientRect().width, c.getBBox().height])"
        )
        # the notebooks' five, success by task, cost, six differences, curve, ends, two per success
        assert len(boxes) == 5 + 1 + 1 + 6 + 1 + 1 + 2
        assert all(0.8 * min(size["width"], 820) < width <= size["width"] for width, _ in boxes)
        assert all(height > 40 for _, height in boxes)
        assert not found.is_wider_than_its_window()
        ink, paper = found.page.evaluate(
            "[getComputedStyle(document.querySelector('.chart svg text')).fill, "
            "getComputedStyle(document.body).backgroundColor]"
        )
        assert (_light(paper) > 200) == (scheme == "light")
        assert abs(_light(ink) - _light(paper)) > 60
    assert found.said == []
    assert found.asked == []


@pytest.mark.full
def test_long_names_are_told_apart_on_a_phone(
    chromium: Any, evaluated: Callable[..., Path], tmp_path: Path
) -> None:
    drawn = [(f"history_and_reasoning_{end}", way) for end in "ab" for way in ("greedy", "temperature=1")]
    store = evaluated(make_played(name, seed, decoding=way) for name, way in drawn for seed in range(12))
    sizes = {name: Training(model=name, n_episodes=ord(name[-1]), n_learned=9) for name, _ in drawn}
    page = tmp_path / "report.html"
    page.write_text(report(store, resamples=500, trainings=sizes).page(), encoding="utf-8")
    assert "<h1>history_and_reasoning_a, history_and_reasoning_b</h1>" in page.read_text(encoding="utf-8")
    with opened(chromium, page, size=PHONE) as found:
        found.page.wait_for_function(_ALL_DRAWN)
        for place in ("#chart-success .role-axis-label", "#chart-learning-curve .role-legend-label"):
            names = found.page.locator(f"{place} text").all_text_contents()
            shown = [name for name in names if name.startswith("hist")]
            assert len(shown) == len(set(shown)) == 4, names
        assert "hist…_b, temperature=1" in shown
        # what stands beside a plot leaves it most of the width
        plot, legend = (
            found.page.locator(f"#chart-learning-curve svg {part}").first.bounding_box()
            for part in ("path.background", ".role-legend")
        )
        assert plot["width"] > 0.6 * PHONE["width"]
        assert legend["x"] + legend["width"] <= PHONE["width"]


@pytest.fixture(scope="module")
def page(chromium: Any, written: Path) -> Iterator[Any]:
    """The page at a desk, with all of its charts."""
    with opened(chromium, written, size=DESKTOP) as found:
        found.page.wait_for_function(_ALL_DRAWN)
        yield found.page


@pytest.mark.full
def test_axes_of_means_begin_at_zero(page: Any) -> None:
    for name in ("success", "return", "length", "generated-tokens", "input-tokens"):
        labels = page.eval_on_selector_all(
            f"#chart-{name} .role-axis-label text", "texts => texts.map(t => t.textContent)"
        )
        assert any(label.rstrip("%") in ("0", "0.0") for label in labels), (name, labels)


def test_every_chart_has_its_numbers(page: Any) -> None:
    tables = page.query_selector_all(".chart + details")
    assert len(tables) == len(page.query_selector_all(".chart"))
    for details in tables:
        details.query_selector("summary").click()
        assert details.query_selector("table td").is_visible()


def test_a_link_of_a_regression_opens_its_episode(page: Any) -> None:
    link = page.query_selector("a[href^='#episode-']")
    goal = page.query_selector(f"[id='{link.get_attribute('href')[1:]}']")
    assert not goal.query_selector("td").is_visible()
    link.click()
    page.wait_for_function("id => document.getElementById(id).open", arg=goal.get_attribute("id"))
    assert goal.query_selector("td").is_visible()
    assert "turn 0" in goal.inner_text()


@pytest.mark.full
def test_a_page_of_one_variant_has_no_comparison(
    chromium: Any,
    evaluated: Callable[..., Path],
    tmp_path: Path,
) -> None:
    page = tmp_path / "one.html"
    page.write_text(report(evaluated([make_played("a", 1)]), resamples=100).page(), encoding="utf-8")
    with opened(chromium, page, size=PHONE) as found:
        found.page.wait_for_function(_ALL_DRAWN)
        assert "worse" not in found.page.inner_text("body")
    assert found.said == []


def _light(color: str) -> float:
    numbers = [float(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")]
    return sum(numbers) / 3
