"""docs/register.md does what it says: its console blocks print what is shown, beside a copy of the recipe."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.pages import printed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "register.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_console_blocks_print_what_is_shown(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "recipes" / "babyai", tmp_path, dirs_exist_ok=True)
    before = (tmp_path / "tensorzero.toml").read_bytes()
    shown = printed(PAGE, tmp_path, OPENAI_API_KEY="")
    assert len(shown) == 5
    assert (tmp_path / "tensorzero.toml").read_bytes() == before  # all was taken back
