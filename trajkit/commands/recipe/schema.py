"""Recipes as JSON Schema: an editor then knows every command, its options, and what they mean."""

from __future__ import annotations

from typing import Any

from trajkit.commands.recipe.recipe import RECIPE_VERSION, Recipe
from trajkit.commands.recipe.steps import BELONG_TO_RUN
from trajkit.commands.recipe.verb import Option, Verb, find, names

_SCALAR: dict[str, Any] = {"type": ["string", "number", "boolean", "null"]}
_SHAPES: dict[str, Any] = {
    "flag": {"type": ["boolean", "null"]},
    "value": _SCALAR,
    "values": {
        "anyOf": [
            _SCALAR,
            {"type": "array", "items": _SCALAR},
            {"type": "object", "additionalProperties": _SCALAR},
        ]
    },
}


def recipe_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a recipe's file."""
    described = Recipe.model_json_schema(mode="validation")
    found = [verb for name in names() if (verb := find(name)) is not None]
    described["$defs"] = {**_SHAPES, "step": {"anyOf": [_step(verb) for verb in found]}}
    described["properties"]["version"] |= {"const": RECIPE_VERSION}
    steps = described["properties"]["steps"]
    steps["patternProperties"] = {pattern: {"$ref": "#/$defs/step"} for pattern in steps["patternProperties"]}
    for named in (steps, described["properties"]["files"]):
        named["additionalProperties"] = False
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:trajkit:v{RECIPE_VERSION}:recipe",
        **described,
    }


def _step(verb: Verb) -> dict[str, Any]:
    options = {option.name: _option(option) for option in verb.options if option.name not in BELONG_TO_RUN}
    return {
        "type": "object",
        "description": verb.text,
        "properties": {"verb": {"const": verb.name}, **options},
        "required": ["verb"],
        "additionalProperties": False,
    }


def _option(option: Option) -> dict[str, Any]:
    shape = "flag" if option.is_flag else "values" if option.is_repeated else "value"
    return {"$ref": f"#/$defs/{shape}"} | ({"description": option.text} if option.text else {})
