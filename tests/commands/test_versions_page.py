"""docs/versions.md: its commands print what is shown."""

from __future__ import annotations

from pathlib import Path

from tests.pages import printed

PAGE = (Path(__file__).parents[2] / "docs" / "versions.md").read_text(encoding="utf-8")


def test_the_page_prints_what_is_shown(tmp_path: Path) -> None:
    assert len(printed(PAGE, tmp_path, COLUMNS="100")) == 11
