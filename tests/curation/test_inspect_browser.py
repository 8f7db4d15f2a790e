"""The page of `trajkit inspect --html` in a real browser."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import DESKTOP, PHONE, browser, opened
from tests.matrix import daily
from trajkit.commands.inspect import inspect


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    name = "a-" + "very-" * 30 + "long-name.jsonl"
    said = [{"role": "user", "content": "<script>alert(1)</script> " + "x" * 500}]
    rows = [{"messages": [*said, {"role": "assistant", "content": "y" * 300}]}] * 3
    logs = folder / name
    logs.write_text("\n".join([*map(json.dumps, rows), "{"]), encoding="utf-8")
    before = Path.cwd()
    os.chdir(folder)
    try:
        inspect(logs, against="sample:babyai", html=folder / "page.html")
    finally:
        os.chdir(before)
    return folder / "page.html"


@pytest.mark.parametrize(
    ("size", "scheme"),
    daily([(PHONE, "light"), (DESKTOP, "dark")], 1),
    ids=["phone by day", "desktop by night"],
)
def test_the_page_fits_its_window_and_asks_for_nothing(
    chromium: Any, written: Path, size: dict[str, int], scheme: str
) -> None:
    with opened(chromium, written, size=size, scheme=scheme) as found:
        headings = [each.inner_text() for each in found.page.query_selector_all("h2")]
        assert headings[:3] == ["Size", "Trainable", "Scores"]
        assert headings[-1] == "Next"
        assert not found.is_wider_than_its_window()
        assert "<script>alert(1)" in found.page.inner_text("body")
        assert len(found.page.query_selector_all("code")) == 3
        if picture := os.environ.get("TRAJKIT_TEST_PICTURES"):
            found.page.screenshot(path=f"{picture}/inspect-{scheme}.png", full_page=True)
    assert found.said == []
    assert found.asked == []
