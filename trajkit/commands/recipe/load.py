"""Read a recipe, by file or name, with the changes of `--set`; every error has its line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from trajkit._core.samples import recipe_folder
from trajkit.commands.recipe.recipe import Recipe, Scalar, Step, Value, folded
from trajkit.commands.recipe.yaml_text import Located, Place, read_yaml
from trajkit.errors import ConfigError, RequestError
from trajkit.store.conditions.nameable import nearest

_SUFFIXES = (".yaml", ".yml")
_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s:@]*:[^/?#\s]+@|[?&]password=[^&#\s]+", re.IGNORECASE)
_WORDS = {"true": True, "false": False, "null": None}


class Loaded(NamedTuple):
    """A recipe and the lines of its parts."""

    recipe: Recipe
    """Its content, with the changes of --set."""
    located: Located
    """Its file."""
    settings: Mapping[str, str]
    """The values of --set, by path."""

    def error(self, step: str, option: str | None, message: str, *, hint: str | None = None) -> ConfigError:
        """An error about a step, or about one of its options: it names the line, or the --set."""
        for path in self.settings:
            if option is not None and (path == f"{step}.{option}" or path.startswith(f"{step}.{option}.")):
                return ConfigError(f"--set {path}: {message}", hint=hint)
        place = ("steps", step) if option is None else ("steps", step, option)
        return self.located.error(place, f"step {step}: {message}", hint=hint)


def load(source: str, settings: Mapping[str, str] | None = None) -> Loaded:
    """Read a recipe.

    Args:
        source: A file, or the name of a recipe that comes with trajkit, such as `babyai_local_sft`.
        settings: Changes by path: `STEP.OPTION`, or `STEP.OPTION.NAME` for one that takes NAME=VALUE. The
            texts `true`, `false` and `null` are those values.

    Raises:
        ConfigError: It cannot be read, is not YAML or not a recipe, or holds a password.
        RequestError: There is none of this name, or a path of `settings` leads nowhere.
    """
    located = read_yaml(recipe_path(source))
    try:
        recipe = Recipe.model_validate(folded(located.data))
    except ValidationError as error:
        raise _wrong(error, located) from error
    for path, text in (settings or {}).items():
        recipe = _with(recipe, path, text)
    loaded = Loaded(recipe, located, dict(settings or {}))
    for name, step in recipe.steps.items():
        for option, value in step.options.items():
            if any(map(_PASSWORD.search, texts_in(value))):
                raise loaded.error(
                    name,
                    option,
                    f"{option} holds a password, and a run keeps its recipe",
                    hint="leave it to the environment, such as TENSORZERO_CLICKHOUSE_URL",
                )
    return loaded


def recipe_path(source: str) -> Path:
    """The file of a recipe.

    Raises:
        RequestError: No recipe that comes with trajkit has this name; the hint lists them.
    """
    path = Path(source)
    if path.suffix in _SUFFIXES or path.is_file() or len(path.parts) > 1:
        return path
    known = packaged()
    if source not in known:
        hint = f"{nearest(source, known)}; or a file that ends with {_SUFFIXES[0]}"
        raise RequestError(f"there is no recipe {source!r}", hint=hint)
    return known[source]


def packaged() -> dict[str, Path]:
    """The recipes that come with trajkit, by name."""
    return {path.stem: path for path in sorted(recipe_folder().glob("*.yaml"))}


def texts_in(value: Value) -> Iterator[str]:
    """Every text of an option's value."""
    each = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    yield from (text for text in each if isinstance(text, str))


def _with(recipe: Recipe, path: str, text: str) -> Recipe:
    """The recipe with one option changed."""
    name, _, rest = path.partition(".")
    if name not in recipe.steps:
        hint = nearest(name, recipe.steps)
        raise RequestError(f"--set {path}: recipe {recipe.name} has no step {name!r}", hint=hint)
    option, _, inner = rest.partition(".")
    if not option:
        raise RequestError(f"--set {path} names no option of {name}", hint=f"--set {name}.OPTION=VALUE")
    step = recipe.steps[name]
    value: Scalar = _WORDS.get(text, text)
    before = step.options.get(option) or {}
    if inner and not isinstance(before, dict):
        raise RequestError(
            f"--set {path}: {option} is not a group of names", hint=f"--set {name}.{option}=VALUE"
        )
    changed: Value = {**before, inner: value} if inner and isinstance(before, dict) else value
    options = {**step.options, option: changed}
    steps = {**recipe.steps, name: Step(verb=step.verb, options=options)}
    return recipe.model_copy(update={"steps": steps})


def _wrong(error: ValidationError, located: Located) -> ConfigError:
    """The first thing that is wrong, at its line."""
    first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # a typo explains more
    place: Place = tuple(str(part) for part in first["loc"])
    if place[:1] == ("steps",) and place[2:3] == ("options",):
        place = (*place[:2], *place[3:])
    where = ".".join(_within(located.data, place)) or "a recipe"
    name = place[-1] if place else ""
    known = ", ".join(Recipe.model_fields)
    if not isinstance(located.data, dict):
        return located.error((), "this is not a recipe", hint=f"it has {known}")
    if first["type"] == "missing":
        return located.error(place, f"{'.'.join(place)} is missing")
    if first["type"] == "extra_forbidden":
        return located.error(place, f"a recipe has no {name!r}", hint=nearest(name, Recipe.model_fields))
    if first["type"] == "string_pattern_mismatch":
        return located.error(
            place, f"{where}: {first['input']!r} is not a name", hint="letters, digits, _, -; a letter first"
        )
    words = first["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    return located.error(place, f"{where}: {words}")


def _within(data: Any, place: Place) -> Iterator[str]:
    """As much of a place as there is in the data: pydantic adds which type it tried."""
    for part in place:
        if isinstance(data, dict) and part in data:
            data = data[part]
        elif isinstance(data, list) and part.isdecimal() and int(part) < len(data):
            data = data[int(part)]
        else:
            return
        yield part
