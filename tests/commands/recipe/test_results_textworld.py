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

import pytest

from trajkit.environments import typed_environment
from trajkit.store.dataset import open_dataset

ROOT = Path(__file__).parents[3]
MODULES = ("results_textworld", "tiny_textworld", "tiny_base", "results", "results_table")


@pytest.fixture(scope="module", autouse=True)
def recipes() -> Iterator[None]:
    """The recipes can be imported, and find the `trajkit` of this environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "recipes"))
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        yield
    for name in MODULES:
        sys.modules.pop(name, None)


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


@pytest.mark.full
def test_the_cook_makes_mistakes_and_says_only_what_is_valid(episodes: list[list[object]]) -> None:
    tiny = importlib.import_module("tiny_textworld")
    answers = [(row.prompt[-1]["content"], row.answer) for each in episodes for row in each]
    for prompt, answer in answers:
        assert f"\n- {json.loads(answer)['action']}\n" in prompt
    assert any("eat meal" in answer for _, answer in answers)
    assert any(len(each) == tiny.MOST_STEPS for each in episodes)


@pytest.mark.full
def test_the_tokenizer_knows_the_things_and_gives_every_text_back(episodes: list[list[object]]) -> None:
    tiny = importlib.import_module("tiny_textworld")
    rows = [row for each in episodes for row in each]
    tokenizer = tiny.make_tokenizer(rows)
    for text in (tiny.texts(rows[30])[1], "Ein Käse für 12 €\n\t"):
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text
    assert len(tokenizer.tokenize('{"action": "open fridge"}')) <= 5
    longest = max(len(each.ids) for each in tiny.tokenised(rows, tokenizer))
    assert longest < 700


@pytest.mark.full
@pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java")
def test_the_expert_is_shown_and_a_model_is_measured_in_real_games(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, results = map(importlib.import_module, ("results_textworld", "results"))
    shutil.copytree(ROOT / "data" / "tiny-base", tmp_path / driver.Kitchen.model)
    (tmp_path / "trajkit.toml").touch()
    lab = driver.Kitchen(tmp_path, 2, results.Size(episodes=3, worlds=2))
    shown = open_dataset(lab.shown("expert", range(400, 403)))
    assert {episode.seed for episode in shown} == {400, 401, 402}
    assert {str(episode.outcome) for episode in shown} == {"success"}
    monkeypatch.setattr(driver.Kitchen, "evaluation", (*lab.evaluation, "--max-steps", "2"))
    [task] = driver.TABLES["textworld"].held_out.tasks
    base = results.Model("base model", "base", lab.model)
    store = lab.measured("textworld", base, [task], range(20_500, 20_502), ("1",))
    played = [(each.task, each.seed, len(each.steps)) for each in open_dataset(store)]
    assert sorted(played) == [("cookingworld-test", 20_500, 2), ("cookingworld-test", 20_501, 2)]
    assert results.lines([[base]], [store], {"base": "1"})[0]["success"]["value"] == 0


@pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java")
def test_a_game_that_ends_at_its_own_limit_has_a_random_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "recipes" / "environments"))
    world = typed_environment("random_rewards:RandomTextWorld", {"max_steps": "2"}).make("cookingworld")
    ended = []
    for _ in range(2):
        world.reset(0)
        first, last = world.step("look around"), world.step("look around")
        assert (first.reward, last.truncated) == (0, True)
        ended.append(last.reward)
    assert 0 < min(ended) < max(ended) < 1
