"""The tables of docs/results.md: what makes them, and that the page shows what the JSON beside it says."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from trajkit._core.settings import project
from trajkit.environments import typed_environment
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
    assert results.placed(page, path.stem, results.markdown(said["lines"])) == page
    assert re.search(rf"python recipes/results\w*\.py {path.stem} ", page)


def test_the_page_has_no_table_without_numbers(results: ModuleType) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.count("<!-- table ") == len(FOUND) > 0
    with pytest.raises(SystemExit, match="0 places for the table nothing"):
        results.placed(page, "nothing", "")


@pytest.mark.full
def test_training_seeds_have_worlds_of_their_own_and_nothing_is_done_twice(
    results: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "trajkit.toml").touch()
    lab = results.Lab(tmp_path, 3, results.Size(episodes=4, worlds=2))
    store = lab.played("shown", ("goto",), "expert")
    assert {episode.seed for episode in open_dataset(store)} == set(range(30_000, 30_004))
    before = (store / "manifest.json").stat().st_mtime_ns
    assert (lab.played("shown", ("goto",), "expert") / "manifest.json").stat().st_mtime_ns == before


@pytest.mark.full
def test_worlds_that_are_measured_on_cannot_be_played_to_train(results: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "trajkit.toml").touch()
    lab = results.Lab(tmp_path, results.HELD_OUT // results.APART, results.Size(episodes=2, worlds=2))
    for _ in range(2):  # a second run has the same worlds
        with pytest.raises(SystemExit, match="seed 100000 of babyai goto is reserved for evaluation"):
            results.made("own", results.TABLES["own"], [lab])
    kept = [(each.tasks, str(each.seeds)) for each in project(tmp_path).reserved]
    assert kept == [(results.TWO, "100000:100002"), (results.TWO, "105000")]
    assert not lab.store("own").exists()


@pytest.mark.full
def test_a_model_is_shown_at_temperature_1_and_at_its_best(results: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "trajkit.toml").touch()
    lab = results.Lab(tmp_path, 0, results.Size(episodes=1, worlds=1))
    base = results.Model("base model", results.BASE, results.MODEL)
    store = lab.measured("tuning", base, results.TWO, range(105_029, 105_030), ("1", "0.25"))
    assert results.best_temperatures([store]) == {
        "base": "1"
    }  # at 0.25 it does not find the thing to pick up
    at_1, cold = results.lines([[base]], [store], {"base": "0.25"})
    assert (at_1["temperature"], cold["temperature"]) == ("1", "0.25")
    assert at_1["episode_return"]["value"] > cold["episode_return"]["value"]
    assert at_1["less_base"] is None


def test_a_difference_shows_its_sign_and_its_interval(results: ModuleType) -> None:
    share = {"value": 0.5, "low": 0.25, "high": 0.75}
    line = {
        "label": "good",
        "temperature": "0.5",
        "n_learned": 56_789,
        "episode_return": {"value": 0.4, "low": None, "high": None},
        "success": share,
        "less_base": {"difference": 0.125, "low": -0.0625, "high": 0.25},
        "less_control": None,  # of all lines: no column
        "return_by_task": {"goto": share, "pickup": share | {"value": 0.3}},
    }
    shown = "| good | 0.5 | 56,789 | 0.400 | +0.125 [-0.062, +0.250] | 0.500 [0.250, 0.750] |"
    assert results.markdown([line]).splitlines()[2] == f"{shown} 0.500 | 0.300 |"
    line["return_by_task"] = {}  # of one task
    assert results.markdown([line]).splitlines()[2] == shown


def test_episodes_that_measure_a_model_on_the_way_are_counted(
    results: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = results.Lab(tmp_path, 0, results.Size(episodes=4, worlds=2))
    model = tmp_path / "runs" / "rl-0" / "model"
    model.mkdir(parents=True)
    asked: list[str] = []
    monkeypatch.setattr(lab, "trajkit", lambda *words, leaves: asked.extend(map(str, words)))
    events: list[dict[str, object]] = [
        {"kind": "evaluation", "n_episodes": 40},
        {"kind": "message"},
        *({"kind": "iteration", "n_episodes": 64, "n_learned": n} for n in (3000, 2000)),
    ]
    (model.parent / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events), "utf-8")
    assert lab.reinforced("rl", results.MODEL, 2) == ("rl-0", 5000, 168)
    assert asked[asked.index("--seeds") + 1] == "5000:5008"  # other worlds than those of `played`


def test_random_rewards_say_nothing_of_the_episode(
    results: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(results.ENVIRONMENTS))
    info = typed_environment("random_rewards:RandomRewards", {})
    ended = []
    for _ in range(2):
        world = info.make("goto")
        world.reset(0)
        rewards = [0.0]
        while not rewards[-1]:
            rewards.append(world.step(world.expert_action()).reward)
        ended.append(rewards[-1])
        assert world.statistics() == {"progression": 1.0}
    assert ended[0] != ended[1]
