"""The example of docs/cluster.md prints what is shown, and both stores are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import printed
from trajkit.store.reader import open_store

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_page_prints_what_is_shown(tmp_path: Path) -> None:
    assert len(printed(PAGE, tmp_path, COLUMNS="100")) == 2
    here, two = (open_store(tmp_path / "stores" / name).manifest for name in ("here", "two"))
    assert here.digest == two.digest
