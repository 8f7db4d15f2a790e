"""The tables of docs/results.md: what makes them, and that the page shows what the JSON beside it says."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from trajkit.store.dataset import open_dataset

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results.md"
FOUND = sorted((ROOT / "docs" / "results").glob("*.json"))


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """`recipes/results.py`, which finds the `trajkit` of this environment."""
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    yield importlib.import_module("results")
    for name in ("results", "results_table"):
        sys.modules.pop(name)


@pytest.mark.parametrize("path", FOUND, ids=[path.stem for path in FOUND])
def test_the_page_shows_the_numbers_beside_it(results: ModuleType, path: Path) -> None:
    said = json.loads(path.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert said["table"] == path.stem
    assert results.placed(page, path.stem, results.markdown(said["lines"])) == page
    assert f"python recipes/results.py {path.stem} " in page


def test_the_page_has_no_table_without_numbers(results: ModuleType) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.count("<!-- table ") == len(FOUND) > 0
    with pytest.raises(SystemExit, match="0 places for the table nothing"):
        results.placed(page, "nothing", "")


def test_a_random_sample_is_as_large_as_what_it_stands_beside(results: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "trajkit.toml").touch()
    lab = results.Lab(tmp_path, 3, results.Size(episodes=12, worlds=2))
    pool = lab.played("demonstrations", "expert", ("goto",))
    assert {episode.seed for episode in open_dataset(pool)} == set(range(30_000, 30_012))
    good, control = lab.filtered(pool, "short", "n_steps <= 4")
    assert 0 < open_dataset(good).n_episodes < 12
    longest = max(len(episode.steps) for episode in open_dataset(pool))
    wanted, drawn = (results.learned(store)[0] for store in (good, control))
    assert abs(wanted - drawn) <= longest
    n_learned, n_episodes = results.learned(lab.drawn_like(good, pool, "drawn"))
    mean = sum(len(episode.steps) for episode in open_dataset(pool)) / 12
    assert n_episodes == round(wanted / mean)
    assert n_learned > 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "stores").rglob("manifest.json")}
    lab.filtered(lab.played("demonstrations", "expert", ("goto",)), "short", "n_steps <= 4")
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_difference_shows_its_sign_and_its_interval(results: ModuleType) -> None:
    share = {"value": 0.5, "low": 0.25, "high": 0.75, "n": 12}
    line = {
        "label": "good",
        "n_episodes": 1_234,
        "n_learned": 56_789,
        "success": share,
        "episode_return": {"value": 0.4, "low": None, "high": None, "n": 12},
        "less_before": {"difference": 0.125, "low": -0.0625, "high": 0.25, "n_pairs": 12},
        "less_control": None,
        "success_by_seed": {"0": 0.4, "1": 0.6},
        "success_by_task": {"goto": share},
    }
    rows = results.markdown([line]).splitlines()
    assert rows[2] == (
        "| good | 1,234 | 56,789 | 0.500 [0.250, 0.750] | 0.400 | +0.125 [-0.062, +0.250] |  | 0.40 0.60 |"
    )
    assert rows[-2:] == ["| --- | ---: |", "| good | 0.500 |"]
