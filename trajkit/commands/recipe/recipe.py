"""A recipe: steps, each a command of trajkit with its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, field_validator

from trajkit.schema import Model
from trajkit.schema.base import Name, Text

RECIPE_VERSION = 1
"""The version of recipes that this trajkit reads."""

RESERVED = frozenset({"run", "steps", "runs", "recipe", "lock"})
"""Names that the run folder needs for itself."""

Label = Annotated[str, Field(pattern="^[A-Za-z][A-Za-z0-9_-]*$")]
"""Name of a step or a file: letters, digits, `_` and `-`, a letter first."""

Scalar = bool | int | float | Text | None
Value = Scalar | list[Scalar] | dict[Text, Scalar]
"""Value of an option: a text or a number, true for a flag, a list for one that may be repeated, names and
values for one that takes NAME=VALUE. Without a value (null) the option is left out."""


class Step(Model):
    """One command with its options."""

    verb: Name
    """The command, such as `select` or `sft local`."""
    options: dict[Text, Value] = {}
    """Its arguments and options by their names, `-` as `_`: `--num-train-epochs` is `num_train_epochs`."""


class Recipe(Model):
    """Commands in the order in which they run."""

    version: int
    """Version of the format: 1."""
    name: Label
    """Its name."""
    needs: Text | None = None
    """What it needs before it runs."""
    minutes: Text | None = None
    """How long it takes."""
    cost: Text | None = None
    """What it costs."""
    leaves: Text | None = None
    """What it leaves afterwards."""
    files: dict[Label, Text] = {}
    """Files and folders, relative to the recipe, that are copied into the run folder first, by name there."""
    steps: Annotated[dict[Label, Step], Field(min_length=1)]
    """The steps by name, in order."""

    @field_validator("version")
    @classmethod
    def _is_known(cls, version: int) -> int:
        if version != RECIPE_VERSION:
            raise ValueError(f"this trajkit reads version {RECIPE_VERSION}, not {version}")
        return version

    @field_validator("files", "steps")
    @classmethod
    def _is_free(cls, named: dict[str, Any]) -> dict[str, Any]:
        for name in named:
            if name in RESERVED:
                raise ValueError(f"{name!r} is a name of the run folder itself: choose another")
        return named

    @field_validator("steps")
    @classmethod
    def _is_once(cls, steps: dict[str, Step], info: Any) -> dict[str, Step]:
        for name in steps:
            if name in info.data.get("files", {}):
                raise ValueError(f"{name!r} is a file already: choose another name for the step")
        return steps


def flat(step: Step) -> dict[str, Any]:
    """A step as the file writes it: the verb and the options side by side."""
    return {"verb": step.verb, **step.options}


def folded(data: Any) -> Any:
    """The content of a file, with the options of each step below `options`, as the models have them.

    Content of another shape is kept: the models report what is wrong with it.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("steps"), Mapping):
        return data
    steps = {name: _folded(step) for name, step in data["steps"].items()}
    return {**data, "steps": steps}


def _folded(step: Any) -> Any:
    if not isinstance(step, Mapping):
        return step
    options = {name: value for name, value in step.items() if name != "verb"}
    return {"options": options} | ({"verb": step["verb"]} if "verb" in step else {})
