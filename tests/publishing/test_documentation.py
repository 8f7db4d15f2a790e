"""docs/publish.md: its commands print what is shown, against a Hub of our own over real HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import printed
from tests.publishing.hub_standin import TOKEN, HubStandin
from trajkit.curation.selection.split import split
from trajkit.store.reader import open_store

PAGE = (Path(__file__).parents[2] / "docs" / "publish.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_page_prints_what_is_shown(standin: HubStandin, tmp_path: Path) -> None:
    standin.user = "me"
    split("sample:babyai", tmp_path / "stores" / "split", ratio={"train": 0.8, "val": 0.2})
    environment = {
        "HF_ENDPOINT": standin.url,
        "HF_TOKEN": TOKEN,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    assert len(printed(PAGE, tmp_path, COLUMNS="100", **environment)) == 3
    stores = tmp_path / "stores"
    for side in ("train", "val"):
        digests = {open_store(stores / name / side).manifest.digest for name in ("split", "again")}
        assert len(digests) == 1
    assert standin.dataset("me/goto").private
