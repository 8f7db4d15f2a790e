"""What docs/view.md shows is what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import blocks, printed

PAGE = Path(__file__).parents[3] / "docs" / "view.md"


def test_the_page_writes_the_file_that_it_shows(tmp_path: Path) -> None:
    printed(PAGE.read_text(encoding="utf-8"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["goto.html"]


def test_its_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks(PAGE.read_text(encoding="utf-8"), "python")
    exec(compile(code, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")
