"""The steps of a recipe as commands: names filled in, every option checked, before the first one runs.

Also recipes as JSON Schema: an editor then shows every command, its options, and what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from trajkit._core.outside import name_from_outside
from trajkit.commands.recipe.folder import FACTS_FILE, RECIPE_FILE
from trajkit.commands.recipe.load import Loaded, texts_in
from trajkit.commands.recipe.recipe import RECIPE_VERSION, RESERVED, Recipe, Step, Value
from trajkit.commands.recipe.verb import Option, Unfit, Verb, check, find, names, typed
from trajkit.errors import DataError
from trajkit.store.conditions.nameable import nearest

RUN = "run"
"""The name of the run folder in a recipe."""

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
BELONG_TO_RUN = {
    "yes": "`trajkit run` asks once, or not at all with --yes",
    "dry_run": "`trajkit run --dry-run` shows the plan",
    "json": "`trajkit run --json` prints what was done",
    "detach": "the next step needs the output of this one",
}
"""Options of commands that recipes do not have, and why."""

_RECORD = {*RESERVED, FACTS_FILE, RECIPE_FILE}
"""Names that the run folder itself uses. Some file systems ignore case."""

_OUTPUT_WITH = {"leak": "drop", "register": "emit", "validate": "fix"}
"""Commands that take -o only together with another option."""

_GATEWAY = "writes to the gateway's database; a model that is not the stand-in may cost money"
_OUTSIDE = {
    "up": "starts services on this machine",
    "down": "stops the services on this machine",
    "rollout": _GATEWAY,
    "evaluate": _GATEWAY,
    "reserve": "changes trajkit.toml",
}
_SCRIPTED = ("expert", "noisy-expert", "random", "local")
"""Policies that call nothing outside of this process."""
_HOSTED = "sends the rows to a service, which bills them"
_TRAINING = ("sft ", "dpo ", "kto ", "rl ")

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


class PlannedStep(NamedTuple):
    """A step that is ready to run."""

    name: str
    """Its name."""
    verb: Verb
    """The command."""
    options: Mapping[str, Value]
    """Its options, with names filled in."""
    arguments: tuple[str, ...]
    """The same as typed."""
    references: tuple[str, ...]
    """The steps and files that it reads."""
    texts: tuple[str, ...]
    """Every other text of its options, any of which may name what it reads."""
    output: Path | None
    """Its output; None if it has none, or for a job."""
    job: str | None
    """Name of the job that it starts; None when it starts none."""
    outside: str | None
    """What it does outside of the run folder; None when nothing."""
    asks: bool
    """Whether it asks for confirmation itself, because only it knows the price or the change."""

    @property
    def leaves(self) -> tuple[Path, ...]:
        """All that it writes into the run folder: the output, and a control beside it."""
        if self.output is None:
            return ()
        control = self.output.with_name(f"{self.output.name}-control")
        return (self.output, control) if self.options.get("control") else (self.output,)

    @property
    def runs(self) -> Path:
        """Where its job is kept."""
        return Path(str(self.options["runs"]))


def plan(loaded: Loaded, folder: Path) -> list[PlannedStep]:
    """The steps as they will run.

    Args:
        loaded: The recipe.
        folder: The run folder; it may not exist yet.

    Raises:
        ConfigError: A step names a command, an option, a value or a step that does not exist.
    """
    found: dict[str, str | None] = {RUN: str(folder)}
    found |= {name: str(folder / name) for name in loaded.recipe.files}
    planned: list[PlannedStep] = []
    taken = set(loaded.recipe.files)
    for name, step in loaded.recipe.steps.items():
        ready = _ready(name, step, loaded, folder, found)
        found[name] = str(ready.output) if ready.output is not None else ready.job
        mine = {path.relative_to(folder).parts[0] for path in ready.leaves}
        for first in sorted(mine):
            if first in taken or first.casefold() in _RECORD:
                raise loaded.error(name, "output", f"something else is called {first!r} in the run folder")
        taken |= mine
        planned.append(ready)
    return planned


def _ready(
    name: str, step: Step, loaded: Loaded, folder: Path, found: Mapping[str, str | None]
) -> PlannedStep:
    verb = _verb(name, step, loaded)
    _check_names(name, step, verb, loaded)
    references: list[str] = []
    options: dict[str, Value] = {}
    for option, value in step.options.items():

        def fill(match: re.Match[str], option: str = option) -> str:
            text = _referred(match[1], name, option, loaded, found)
            references.append(match[1])
            return text

        options[option] = _filled(value, fill)
    output = _output(name, verb, options, loaded, folder)
    if output is not None:
        options["output"] = str(output)
    if verb.option("runs") is not None:
        options.setdefault("runs", str(folder / "runs"))
    if verb.is_job:
        options.setdefault("name", name)
        _check_name(str(options["name"]), name, "name", loaded)
    try:
        arguments = typed(verb, options)
        check(verb, arguments)
    except Unfit as error:
        wrong = None if error.option is None else verb.option(error.option)
        hint = f"{error.option}: {wrong.text}" if wrong is not None and wrong.text else None
        raise loaded.error(name, error.option, error.message, hint=hint) from error
    return PlannedStep(
        name=name,
        verb=verb,
        options=options,
        arguments=tuple(arguments),
        references=tuple(dict.fromkeys(each for each in references if each != RUN)),
        texts=tuple(
            text
            for option, value in step.options.items()
            if option not in ("output", "runs", "name")
            for text in texts_in(value)
            if not _REFERENCE.search(text)
        ),
        output=output,
        job=str(options["name"]) if verb.is_job else None,
        outside=_outside(verb, options, folder),
        asks=_asks(verb, options, folder),
    )


def _verb(name: str, step: Step, loaded: Loaded) -> Verb:
    verb = find(step.verb)
    if verb is None:
        inner = [each for each in names() if each.startswith(f"{step.verb} ")]
        hint = f"there are: {', '.join(inner)}" if inner else nearest(step.verb, names())
        raise loaded.error(name, "verb", f"trajkit has no command {step.verb!r}", hint=hint)
    return verb


def _check_names(name: str, step: Step, verb: Verb, loaded: Loaded) -> None:
    known = [option.name for option in verb.options if option.name not in BELONG_TO_RUN]
    for option in step.options:
        if option in BELONG_TO_RUN and verb.option(option) is not None:
            raise loaded.error(name, option, f"{option} is not for recipes", hint=BELONG_TO_RUN[option])
        if option not in known:
            hint = nearest(option, known)
            raise loaded.error(name, option, f"{verb.name} has no option {option!r}", hint=hint)


def _filled(value: Value, fill: Callable[[re.Match[str]], str]) -> Value:
    if isinstance(value, str):
        return _REFERENCE.sub(fill, value)
    if isinstance(value, list):
        return [_REFERENCE.sub(fill, each) if isinstance(each, str) else each for each in value]
    if isinstance(value, dict):
        return {
            key: _REFERENCE.sub(fill, each) if isinstance(each, str) else each for key, each in value.items()
        }
    return value


def _referred(other: str, name: str, option: str, loaded: Loaded, found: Mapping[str, str | None]) -> str:
    """What a name in `${…}` stands for."""
    if (text := found.get(other)) is not None:
        return text
    if other in found:
        message, hint = f"step {other} has no output that could be named", None
    elif other == name:
        message, hint = f"{option} names the step itself", None
    elif other in loaded.recipe.steps:
        message, hint = f"{option} names {other}, which comes later", "steps run in the order of the file"
    else:
        message, hint = f"there is no step or file {other!r}", nearest(other, found)
    raise loaded.error(name, option, message, hint=hint)


def _output(name: str, verb: Verb, options: Mapping[str, Value], loaded: Loaded, folder: Path) -> Path | None:
    """Where a step writes: always in the run folder, as only there it may be removed and repeated."""
    if verb.option("output") is None:
        return None
    given = options.get("output")
    needs = _OUTPUT_WITH.get(verb.name)
    if given is None and needs is not None and not options.get(needs):
        return None
    inside = PurePath(name if given is None else str(given).removeprefix(f"{folder}/"))
    if inside.is_absolute() or ".." in inside.parts or not inside.parts:
        raise loaded.error(
            name,
            "output",
            f"output {str(given)!r} is not in the run folder",
            hint="give a name, or leave it out",
        )
    for part in inside.parts:
        _check_name(part, name, "output", loaded)
    return folder / inside


def _check_name(text: str, name: str, option: str, loaded: Loaded) -> None:
    try:
        name_from_outside(text, what=option)
    except DataError as error:
        raise loaded.error(name, option, error.message, hint=error.hint) from error


def _outside(verb: Verb, options: Mapping[str, Value], folder: Path) -> str | None:
    if verb.name.startswith(_TRAINING) and not verb.name.endswith(" local"):
        return _HOSTED
    if verb.name == "register" and not options.get("emit") and not _is_inside(options.get("config"), folder):
        return f"changes {options.get('config') or 'the configuration of trajkit.toml'}"
    return None if _plays_here(verb, options) else _OUTSIDE.get(verb.name)


def _plays_here(verb: Verb, options: Mapping[str, Value]) -> bool:
    """Whether episodes are played in this process alone: scripted, or by local models."""
    if verb.name == "rollout":
        return options.get("policy") in _SCRIPTED
    if verb.name != "evaluate" or options.get("model_url"):
        return False
    variants = options.get("variants")
    names_models = isinstance(variants, dict) or any("=" in text for text in texts_in(variants))
    return options.get("through", "process" if names_models or options.get("model") else "") == "process"


def _asks(verb: Verb, options: Mapping[str, Value], folder: Path) -> bool:
    """A step that can ask does so, unless everything it could cost or change is known to be in the folder."""
    if verb.option("yes") is None or _plays_here(verb, options):
        return False
    if verb.name.startswith(_TRAINING):
        return not verb.name.endswith(" local")
    return not (verb.name == "register" and _is_inside(options.get("config"), folder))


def _is_inside(value: Value, folder: Path) -> bool:
    return isinstance(value, str) and Path(value).is_relative_to(folder)


def recipe_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a recipe's file."""
    described = Recipe.model_json_schema(mode="validation")
    found = [verb for name in names() if (verb := find(name)) is not None]
    described["$defs"] = {**_SHAPES, "step": {"anyOf": [_step_schema(verb) for verb in found]}}
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


def _step_schema(verb: Verb) -> dict[str, Any]:
    options = {
        option.name: _option_schema(option) for option in verb.options if option.name not in BELONG_TO_RUN
    }
    return {
        "type": "object",
        "description": verb.text,
        "properties": {"verb": {"const": verb.name}, **options},
        "required": ["verb"],
        "additionalProperties": False,
    }


def _option_schema(option: Option) -> dict[str, Any]:
    shape = "flag" if option.is_flag else "values" if option.is_repeated else "value"
    return {"$ref": f"#/$defs/{shape}"} | ({"description": option.text} if option.text else {})
