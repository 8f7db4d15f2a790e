"""`recipes/results_textworld.py` and the base that it makes: games, prompts, numbers."""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from trajkit.store.dataset import open_dataset

ROOT = Path(__file__).parents[3]
MODULES = (
    "results_textworld",
    "results_textworld_table",
    "tiny_textworld",
    "tiny_base",
    "results",
    "results_table",
)


@pytest.fixture(scope="module", autouse=True)
def recipes() -> Iterator[None]:
    """The recipes can be imported, and find the `trajkit` of this environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "recipes"))
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        yield
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def table() -> ModuleType:
    """What writes the tables."""
    return importlib.import_module("results_textworld_table")


needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java")


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> list[list[object]]:
    """Some episodes of the poor cook."""
    if shutil.which("java") is None:
        pytest.skip("there is no Java: `make system` installs it")
    tiny = importlib.import_module("tiny_textworld")
    environment = tiny.TextWorld(tiny.GAME, max_steps=tiny.MOST_STEPS, **tiny.PARAMETERS)
    chance = random.Random(0)
    try:
        return [list(tiny.episode(environment, tiny.FIRST_WORLD + world, chance)) for world in range(12)]
    finally:
        environment.close()


def test_the_cook_makes_mistakes_and_says_only_what_is_valid(episodes: list[list[object]]) -> None:
    tiny = importlib.import_module("tiny_textworld")
    answers = [(row.prompt[-1]["content"], row.answer) for each in episodes for row in each]
    for prompt, answer in answers:
        assert f"\n- {json.loads(answer)['action']}\n" in prompt
    assert any("eat meal" in answer for _, answer in answers)
    assert any(len(each) == tiny.MOST_STEPS for each in episodes)


def test_the_tokenizer_knows_the_things_and_gives_every_text_back(episodes: list[list[object]]) -> None:
    tiny = importlib.import_module("tiny_textworld")
    rows = [row for each in episodes for row in each]
    tokenizer = tiny.make_tokenizer(rows)
    for text in (tiny.texts(rows[30])[1], "Ein Käse für 12 €\n\t"):
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text
    assert len(tokenizer.tokenize('{"action": "open fridge"}')) <= 5
    longest = max(len(each.ids) for each in tiny.tokenised(rows, tokenizer))
    assert longest < 700


def test_a_space_more_is_the_only_difference(tmp_path: Path) -> None:
    tiny, driver = (importlib.import_module(name) for name in ("tiny_textworld", "results_textworld"))
    lab = driver.Kitchen(tmp_path, 0, driver.Size(1, 1))
    model = tmp_path / "runs" / "expert-0" / "model"
    shutil.copytree(ROOT / "data" / "tiny-base", model)
    said = [asked_by(folder) for folder in (model, Path(lab.spaced("expert-0")))]
    assert said[0].endswith("<|im_start|>assistant\n")
    assert said[1] == f"{said[0]} "
    assert (model / "chat_template.jinja").read_text(encoding="utf-8") == tiny.TEMPLATE


def asked_by(folder: Path) -> str:
    """What a model of a folder is asked."""
    tokenizer = importlib.import_module("transformers").AutoTokenizer.from_pretrained(folder)
    asked = [{"role": "user", "content": "What now?"}]
    return str(tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True))


@needs_java
@pytest.mark.full
def test_a_table_of_real_games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = importlib.import_module("results_textworld")
    monkeypatch.setattr(driver, "MOST_STEPS", 2)
    shutil.copytree(ROOT / "data" / "tiny-base", tmp_path / driver.BASE)
    (tmp_path / "trajkit.toml").touch()
    lab = driver.Kitchen(tmp_path, 2, driver.Size(episodes=3, worlds=2))
    shown = open_dataset(lab.shown())
    assert {episode.seed for episode in shown} == {400, 401, 402}
    assert {str(episode.outcome) for episode in shown} == {"success"}
    monkeypatch.setattr(driver, "CELLS", {name: driver.CELLS[name] for name in ("before-dev", "before-test")})
    table = driver.Table(
        "before alone",
        [driver.Row("one", "before-dev", "before-dev"), driver.Row("two", "before-test", "before-dev")],
    )
    lines = driver.made(table, [lab])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("manifest.json")}
    assert len(before) == 3
    assert [(line["name"], line["success"]["value"], line["success"]["n"]) for line in lines] == [
        ("before-dev", 0, 2),
        ("before-test", 0, 2),
    ]
    assert lines[1]["success_less"] == {"difference": 0, "low": -0.6576, "high": 0.6576, "n_pairs": 0}
    played = open_dataset(lab.tasted(driver.CELLS["before-test"].worlds))
    assert {(each.task, each.seed) for each in played} == {
        ("cookingworld-test", 20_000),
        ("cookingworld-test", 20_001),
    }
    assert driver.made(table, [lab]) == lines
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_the_difference_of_two_samples_is_newcombes(table: ModuleType) -> None:
    """56 of 70 and 48 of 80, as in the paper's first example."""
    wilson = importlib.import_module("trajkit.curation.intervals").wilson
    one, other = wilson(48, 80)._asdict(), wilson(56, 70)._asdict()
    assert table.unpaired(one, other) == {"difference": 0.2, "low": 0.0524, "high": 0.3339}


def test_a_line_shows_signs_and_leaves_out_what_is_not_known(table: ModuleType) -> None:
    share = {"value": 0.5, "low": 0.25, "high": 0.75, "n": 12}
    line = {
        "label": "greedy",
        "success": share,
        "progression": share | {"low": None, "high": None},
        "n_steps": {"value": 12.34},
        "invalid": {"value": 0.001},
        "success_less": {"difference": -0.125, "low": -0.25, "high": 0.0625, "n_pairs": 0},
        "progression_less": None,
        "success_by_seed": {"0": 0.4, "1": 0.6},
    }
    assert table.markdown([line]).splitlines()[2] == (
        "| greedy | 0.500 [0.250, 0.750] | 0.500 | 12.3 | 0.001 | -0.125 [-0.250, +0.062] |  | 0.40 0.60 |"
    )
