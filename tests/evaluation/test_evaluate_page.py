"""docs/evaluate.md: its console block prints what is shown, its Python runs, its commands exist."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.pages import blocks, printed
from trajkit.store.dataset import open_dataset

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_page_prints_what_is_shown(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "recipes" / "babyai", tmp_path / "babyai")
    assert len(printed(PAGE, tmp_path, OMP_NUM_THREADS="1")) == 1
    assert len(list(open_dataset(tmp_path / "stores" / "prompts"))) == 20


def test_the_python_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = blocks(PAGE, "python")
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert re.match(
        r"metric='success' task=None value=1\.0 .* low=0\.5\d+ high=1\.0 n=4 n_rooms=None n_models=1\n",
        capsys.readouterr().out,
    )
