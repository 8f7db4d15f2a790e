"""A model in training that plays real worlds of BabyAI, through the templates of the gateway's function."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from trajkit._core.seeds import as_seeds
from trajkit._core.settings import Reservation
from trajkit.errors import RequestError
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.models.generation.ask import Ask, Said
from trajkit.store.dataset import open_dataset
from trajkit.training.local.base_model import load_base
from trajkit.training.local.play import Player, open_stage, staged
from trajkit.training.local.recipe import LocalRecipe, PlayRecipe
from trajkit.training.origin import Origin

CONFIG = Path(__file__).parents[3] / "recipes" / "babyai" / "tensorzero.toml"
BASE = "sample:tiny-base"
RECIPE = PlayRecipe(
    seeds="300:303", env="babyai", tasks=("goto",), config=str(CONFIG), function="act", variant="baseline"
)
RESERVED = (Reservation(env="babyai", tasks=("goto",), seeds=as_seeds("300:310")),)


@pytest.fixture(scope="module")
def model() -> Any:
    return load_base(BASE, LocalRecipe())


def player(**options: Any) -> Player:
    recipe = RECIPE.model_copy(update={"max_new_tokens": 8, **options})
    return Player(open_stage(recipe, RESERVED), ChatTemplate(BASE), seed=0)


@pytest.mark.full
def test_a_model_plays_the_same_twice_and_draws_nothing_from_the_training(model: Any) -> None:
    import torch

    torch.manual_seed(7)
    drawn = torch.rand(1).item()
    torch.manual_seed(7)
    play = player(seeds="300:301")
    first = play(model)
    assert torch.rand(1).item() == drawn
    assert player(seeds="300:301")(model) == first
    assert first.n == 1
    assert 0 <= first.mean <= 1


class Heard:
    """Takes the prompts that the model is asked, and answers for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        self.prompts: list[Sequence[Mapping[str, Any]]] = []
        self.sizes: list[int] = []

        def answers(model: Any, asks: Sequence[Ask]) -> list[Said]:
            self.prompts += [ask.messages for ask in asks]
            self.sizes.append(len(asks))
            return [Said(text, (), (), None, 0, 0, "stop")] * len(asks)

        monkeypatch.setattr("trajkit.training.local.play.generate", answers)


def test_prompts_are_the_gateways_and_episodes_are_asked_together(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard(monkeypatch, json.dumps({"thinking": "", "action": "turn left"}))
    assert player()(model).mean == 0  # who only turns comes nowhere
    system, user = heard.prompts[0]
    assert system["role"] == "system"
    assert "Your mission: go to" in system["content"]
    assert "Answer with one JSON object" in str(user["content"])
    assert heard.sizes[0] == 3


def test_only_reserved_seeds_are_played() -> None:
    with pytest.raises(RequestError, match="seed 310 of babyai goto is not reserved") as caught:
        open_stage(RECIPE.model_copy(update={"seeds": "305:312"}), RESERVED)
    assert caught.value.hint == "trajkit reserve babyai --seeds 305:312"
    with pytest.raises(RequestError, match="seed 300 of babyai pickup"):
        open_stage(RECIPE.model_copy(update={"tasks": ("pickup",)}), RESERVED)
    with pytest.raises(RequestError, match="no variant 'other'"):
        open_stage(RECIPE.model_copy(update={"variant": "other"}), RESERVED)


def test_what_is_not_said_is_the_stores() -> None:
    train = open_dataset("sample:babyai")
    asked = PlayRecipe(seeds="300:303", config="tensorzero.toml")
    found = staged(asked, train, Origin(("act",), ("baseline",)))
    assert (found.env, found.function, found.variant) == ("babyai", "act", "baseline")
    assert "goto" in found.tasks
    assert Path(found.config).is_absolute()
    with pytest.raises(RequestError, match="the variant to play is not clear") as caught:
        staged(asked, train, Origin(("act",), ("baseline", "history")))
    assert "--set play.variant=baseline" in (caught.value.hint or "")
    with pytest.raises(RequestError, match="there is no configuration"):
        staged(PlayRecipe(seeds="1:2"), train, Origin(("act",), ("baseline",)))
