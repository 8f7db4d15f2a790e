"""docs/report.md: its commands print what is shown, its Python runs, its options and expressions exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import blocks, printed
from trajkit.evaluation.require import requirement

PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_page_prints_what_is_shown(tmp_path: Path) -> None:
    assert len(printed(PAGE, tmp_path, OMP_NUM_THREADS="1")) == 3
    found = {path.name for path in (tmp_path / "report").iterdir()}
    assert found == set(re.findall(r"`(report\.(?:html|md|json))`", PAGE)) | {"charts"}


@pytest.mark.full
def test_the_python_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = blocks(PAGE, "python")
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert "metric='success'" in capsys.readouterr().out
    assert (tmp_path / "report" / "report.html").is_file()


def test_the_expressions_of_the_page_can_be_read() -> None:
    rows = re.findall(r"^\| `([^`]+[<>][^`]+)` \|", PAGE, flags=re.MULTILINE)
    assert len([requirement(row) for row in rows]) == 6
