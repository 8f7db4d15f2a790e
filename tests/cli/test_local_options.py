"""The options of trainings on this machine, beside the recipes that they fill."""

from __future__ import annotations

import click
import pytest

from trajkit.cli.main import cli
from trajkit.training.local.preferences.recipe import RECIPES
from trajkit.training.local.recipe import LocalRecipe, LoraRecipe


@pytest.mark.parametrize("method", ["sft", "dpo", "kto"])
def test_the_defaults_that_help_names_are_those_of_the_recipe(method: str) -> None:
    group = cli.get_command(click.Context(cli), method)
    assert isinstance(group, click.Group)
    command = group.commands["local"]
    recipe = LocalRecipe() if method == "sft" else RECIPES[method]()
    known = {**LoraRecipe().model_dump(), **recipe.model_dump()}
    told = {
        option.name: option.default
        for option in command.params
        if isinstance(option, click.Option) and option.name in known and option.show_default
    }
    assert {"num_train_epochs", "learning_rate", "r", "lora_alpha", "max_length", "seed"} <= set(told)
    for name, value in told.items():
        assert value == known[name], name
