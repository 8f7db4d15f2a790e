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

from trajkit._core.settings import project
from trajkit.store.dataset import open_dataset

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "results.md"
FOUND = sorted((ROOT / "docs" / "results").glob("*.json"))


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """`recipes/results.py`, which finds the `trajkit` of this environment."""
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    yield importlib.import_module("results")
    for name in [name for name in sys.modules if name.startswith("results")]:
        sys.modules.pop(name)


@pytest.mark.parametrize("path", FOUND, ids=[path.stem for path in FOUND])
def test_the_page_shows_the_numbers_beside_it(results: ModuleType, path: Path) -> None:
    said = json.loads(path.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert said["table"] == path.stem
    script = said.get("made_by", "results.py")
    writer = importlib.import_module(f"{Path(script).stem}_table")
    assert results.placed(page, path.stem, writer.markdown(said["lines"])) == page
    assert f"python recipes/{script} {path.stem} " in page


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


def test_worlds_that_are_measured_on_cannot_be_played_to_train(results: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "trajkit.toml").touch()
    lab = results.Lab(tmp_path, results.HELD_OUT // results.APART, results.Size(episodes=2, worlds=1))
    lab.reserve()
    lab.reserve()  # a second run has the same worlds
    (kept,) = project(tmp_path).reserved
    assert (kept.tasks, str(kept.seeds)) == (results.FIVE, "100000")
    with pytest.raises(SystemExit, match="seed 100000 of babyai goto is reserved for evaluation"):
        lab.played("leaking", "expert", ("goto",))
    assert not lab.store("leaking").exists()


def test_each_round_has_a_random_sample_beside_it(results: ModuleType, tmp_path: Path) -> None:
    class Paper(results.Lab):
        """Writes down what would be run; nothing is played or learned."""

        def trajkit(self, *arguments: str | int | Path, leaves: Path | None = None) -> None:
            commands.append([str(word).removeprefix(f"{tmp_path}/stores/") for word in arguments])

    commands: list[list[str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "learned", lambda store: (40, 2) if "rounds" in store.name else (120, 9))
        models = list(results.rounds(Paper(tmp_path, 0, results.Size(4, 2))))
    assert [(model.name, model.control) for model in models] == [
        ("good-control", None), ("good", "good-control"),
        ("round-2-control", None), ("round-2", "round-2-control"),
        ("round-3-control", None), ("round-3", "round-3-control"),
    ]  # fmt: skip
    by_goal = {command[-1]: command for command in commands if command[-2] == "-o"}
    # drawn from all that was played so far, with as many answers as all that was chosen so far
    assert by_goal["played-to-3-0"][1:4] == ["own-two-0", "round-2-0", "round-3-0"]
    assert by_goal["rounds-to-3-0"][1:4] == ["good-0", "round-2-good-0", "round-3-good-0"]
    assert by_goal["round-3-control-0"][:5] == [
        *("select", "played-to-3-0", "--unreserved", "--sample", "3"),
    ]
    (plays,) = (
        [word for word in command if ":" in word] for command in commands if "round-3-0" in command[-1:]
    )
    assert plays == ["8:12"]  # worlds of its own


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
        "| good | 1,234 | 56,789 | 0.400 | 0.500 [0.250, 0.750] | +0.125 [-0.062, +0.250] |  | 0.40 0.60 |"
    )
    assert rows[-2:] == ["| --- | ---: |", "| good | 0.500 |"]
