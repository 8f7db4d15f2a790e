"""The JSON Schema takes every recipe that runs, and refuses what would not."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml

from tests.commands.recipe.conftest import CHOOSE
from trajkit.commands.recipe.load import packaged
from trajkit.commands.recipe.schema import recipe_schema
from trajkit.commands.recipe.verb import names


@pytest.fixture(scope="module")
def schema() -> Any:
    made = recipe_schema()
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def test_recipes_are_valid(schema: Any) -> None:
    schema.validate(yaml.safe_load(CHOOSE))
    for path in packaged().values():
        schema.validate(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("verb: split", "verb: splt"),
        ("ratio:", "ration:"),
        ("version: 1", "version: 2"),
        ("  good:", "  two words:"),
        ("where: purpose = 'train' and episode_return >= 0.7", "json: true"),
        ("ratio: train=0.8,val=0.2", "ratio: [1]"),
    ],
)
def test_what_would_not_run_is_not_valid(schema: Any, before: str, after: str) -> None:
    assert before in CHOOSE
    assert not schema.is_valid(yaml.safe_load(CHOOSE.replace(before, after)))


def test_every_command_is_there_with_its_options(schema: Any) -> None:
    steps = {step["properties"]["verb"]["const"]: step for step in schema.schema["$defs"]["step"]["anyOf"]}
    assert set(steps) == set(names())
    assert {"select", "archive", "archive verify", "sft local", "jobs wait"} < set(steps)
    assert "run" not in steps
    assert {"num_train_epochs", "set", "name"} < set(steps["sft local"]["properties"])
    assert not {"yes", "json", "dry_run", "detach"} & set(steps["sft local"]["properties"])
