"""The options of trainings on this machine, beside the recipes that they fill."""

from __future__ import annotations

import importlib
import re

import click
import pytest

from trajkit.training.local.preference_recipe import RECIPES
from trajkit.training.local.recipe import LocalRecipe, LoraRecipe


@pytest.mark.parametrize("method", ["sft", "dpo", "kto"])
def test_the_defaults_that_help_names_are_those_of_the_recipe(method: str) -> None:
    command = importlib.import_module(f"trajkit.cli.{method}_local").local
    recipe = LocalRecipe() if method == "sft" else RECIPES[method]()
    known = {**LoraRecipe().model_dump(), **recipe.model_dump()}
    told = {}
    for option in command.params:
        if isinstance(option, click.Option) and option.name in known:
            named = re.search(r"\[default: (.+)\]", option.help or "")
            if named is not None:
                told[option.name] = named[1]
    assert {"num_train_epochs", "learning_rate", "r", "lora_alpha", "max_length", "seed"} <= set(told)
    for name, words in told.items():
        value = known[name][0] if isinstance(known[name], tuple) else known[name]
        assert (float(words) if isinstance(value, int | float) else words) == value, name
