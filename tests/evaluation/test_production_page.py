"""docs/production.md: from conversations without an environment to a measured model, as it is typed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.pages import blocks, printed
from trajkit.evaluation.report import report
from trajkit.store.reader import open_store

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_from_production_traffic_to_a_tuned_model(tmp_path: Path) -> None:
    (tmp_path / "trajkit.toml").touch()
    shutil.copy(ROOT / "bench" / "conversations.py", tmp_path)
    (checks,) = blocks(PAGE, "python")
    (tmp_path / "checks.py").write_text(checks)
    printed(PAGE, tmp_path, COLUMNS="120", OMP_NUM_THREADS="1")
    found = report(tmp_path / "stores" / "scored", metrics=["names_state"])
    by_metric = {each.metric: each for each in found.comparisons}
    # the form is learned; whether the content is depends on the machine's arithmetic
    assert by_metric["success"].low is not None
    assert by_metric["success"].low > 0.5
    assert by_metric["names_state"].difference < by_metric["success"].difference
    train, test = (open_store(tmp_path / "stores" / "sides" / side) for side in ("train", "test"))
    assert train.manifest.counts.n_episodes + test.manifest.counts.n_episodes >= 240
