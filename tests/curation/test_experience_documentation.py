"""The blocks of docs/experience.md run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import blocks, printed

PAGE = (Path(__file__).parents[2] / "docs" / "experience.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_page_prints_what_is_shown_and_its_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(printed(PAGE, tmp_path)) == 4
    monkeypatch.chdir(tmp_path)
    (program,) = blocks(PAGE, "python")
    exec(program, {})
