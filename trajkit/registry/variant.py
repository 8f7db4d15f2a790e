"""Register a tuned model as a new variant of a function, with the prompts of a template variant."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trajkit.errors import RequestError
from trajkit.registry.served import ServedModel
from trajkit.registry.toml_file import Configuration, TomlFile
from trajkit.registry.traffic import check_share, directed, share_of, uses_weights, weight_of
from trajkit.store.conditions.nameable import nearest

_OWN = ("model", "weight")
"""Fields that a variant does not copy from its template."""

_OF_A_MODEL = (
    "extra_body",
    "extra_headers",
    "reasoning_effort",
    "service_tier",
    "thinking_budget_tokens",
    "verbosity",
)
"""Fields that only some models support."""

_TEMPLATES = ("system_template", "user_template", "assistant_template")


class Registered(NamedTuple):
    """A configuration with a new variant."""

    configuration: Configuration
    """All files, changed or not."""
    notes: tuple[str, ...]
    """Notes for the user, a sentence each without a full stop."""


def register(
    configuration: Configuration,
    *,
    function: str,
    template_variant: str,
    variant: str,
    model: str | ServedModel,
    traffic: float | None = None,
) -> Registered:
    """Add a variant with the prompts of another variant and a new model. Repeating it changes nothing.

    Args:
        configuration: The files.
        function: Function of the variant.
        template_variant: The variant whose prompts the model was trained on.
        variant: Name of the new variant.
        model: A hosted model as the gateway names it, such as `openai::ft:…`, or a model at a server.
        traffic: Share of the function's traffic, from 0 to below 1. None gives a new variant no traffic and
            leaves that of an existing one unchanged.

    Raises:
        RequestError: There is no such function or variant, the name is taken, or the share is invalid.
        ConfigError: The configuration's traffic settings cannot be kept.
    """
    check_share(traffic)
    variants = variants_of(configuration, function)
    template = template_of(configuration, function, template_variant)
    if traffic and template.get("namespace") is not None:
        raise RequestError(
            f"variant {template_variant!r} is for the namespace {template['namespace']!r} only, and so"
            f" {variant!r} would be",
            hint=f"write its share in [functions.{function}.experimentation.namespaces] in the file",
        )
    is_weighed = uses_weights(configuration, function)
    notes: list[str] = []
    if isinstance(model, ServedModel):
        configuration = _with_model(configuration, model, function, template_variant)
    name = model if isinstance(model, str) else model.name
    wanted = _with_moved_paths(configuration, function, template_variant, template) | {"model": name}
    there = variants.get(variant)
    if there is not None:
        _refuse_other(function, variant, there, wanted)
        notes.append(f"variant {variant!r} exists already")
    weight = weight_of(configuration, function, variant, traffic) if is_weighed else None
    if there is None:
        configuration = _with_variant(configuration, function, template_variant, variant, wanted, weight)
        if copied := [key for key in _OF_A_MODEL if key in template]:
            notes.append(
                f"also copied from the template: {', '.join(copied)}, which not every model supports"
            )
    elif weight is not None and traffic is not None and there.get("weight") != weight:
        path = ("functions", function, "variants", variant)
        configuration = configuration.replacing(
            _holder(configuration, *path).with_value((*path, "weight"), weight)
        )
    if weight is None:
        configuration, more = directed(configuration, function, variant, traffic)
        notes += more
    return Registered(configuration, (*notes, _traffic_note(configuration, function, variant)))


def variants_of(configuration: Configuration, function: str) -> dict[str, dict[str, Any]]:
    """Return the variants of a function, by name.

    Raises:
        RequestError: There is no such function.
    """
    functions = configuration.get("functions") or {}
    if function not in functions:
        raise RequestError(
            f"no function {function!r} in the configuration", hint=nearest(function, functions)
        )
    found: dict[str, dict[str, Any]] = functions[function].get("variants") or {}
    return found


def template_of(configuration: Configuration, function: str, name: str) -> dict[str, Any]:
    """Return the settings of a variant whose prompts another variant can use.

    Raises:
        RequestError: There is no such variant, or it has no prompts.
    """
    variants = variants_of(configuration, function)
    template = variants.get(name)
    if template is None:
        raise RequestError(f"function {function!r} has no variant {name!r}", hint=nearest(name, variants))
    if template.get("type") != "chat_completion":
        raise RequestError(
            f"variant {name!r} is of type {template.get('type')!r}",
            hint="a tuned model needs the prompts of a chat_completion variant",
        )
    return template


def have_same_prompts(configuration: Configuration, function: str, *names: str) -> bool:
    """Check whether variants of a function have the same templates, so that they give the same prompts."""
    keys = (*_TEMPLATES, "templates", "input_wrappers")
    variants = variants_of(configuration, function)
    first, *others = [{key: variants[name].get(key) for key in keys} for name in names]
    return all(other == first for other in others)


def _refuse_other(function: str, variant: str, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    settings = {key: value for key, value in there.items() if key != "weight"}
    if settings == wanted:
        return
    keys = [key for key in sorted(settings.keys() | wanted.keys()) if settings.get(key) != wanted.get(key)]
    raise RequestError(
        f"function {function!r} has a variant {variant!r} with other settings: {', '.join(keys)}"
        + (f" ({settings.get('model')!r}, not {wanted['model']!r})" if "model" in keys else ""),
        hint="choose another name with --variant",
    )


def _traffic_note(configuration: Configuration, function: str, variant: str) -> str:
    share = share_of(configuration, function, variant)
    if share is None:
        return "the gateway's experiment decides how much traffic it gets"
    if not share:
        return f"it gets no traffic: only a call that names {variant!r} reaches it"
    return f"it gets {share * 100:.3g}% of the traffic"


def _with_moved_paths(
    configuration: Configuration, function: str, template_variant: str, template: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the template's settings, with paths relative to the file that the new variant is written into.

    The gateway resolves a path relative to its file, and one variant may be spread over several files.
    """
    path = ("functions", function, "variants", template_variant)
    goal = _holder(configuration, *path).path
    wanted = {key: value for key, value in template.items() if key not in _OWN}
    for names in _path_places(wanted):
        holder = _holder(configuration, *path, *names)
        if holder.path.parent == goal.parent:
            continue
        text = holder.get((*path, *names))
        if not Path(text).is_absolute():
            text = Path(os.path.relpath(holder.path.parent / text, goal.parent)).as_posix()
        wanted = _with(wanted, names, text)
    return wanted


def _path_places(settings: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the fields of a variant that name files."""
    yield from ((name,) for name in _TEMPLATES if isinstance(settings.get(name), str))
    for group, ending in (("templates", ("path",)), ("input_wrappers", ())):
        for name, value in (settings.get(group) or {}).items():
            if not ending and isinstance(value, str):
                yield (group, name)
            elif ending and isinstance(value, Mapping) and isinstance(value.get("path"), str):
                yield (group, name, *ending)


def _with(settings: Mapping[str, Any], names: tuple[str, ...], value: str) -> dict[str, Any]:
    if len(names) == 1:
        return {**settings, names[0]: value}
    return {**settings, names[0]: _with(settings[names[0]], names[1:], value)}


def _with_variant(
    configuration: Configuration,
    function: str,
    template_variant: str,
    variant: str,
    wanted: Mapping[str, Any],
    weight: float | None,
) -> Configuration:
    """Add a table after the template's, with type and model first, as people write it."""
    path = ("functions", function, "variants")
    first = {"type": wanted["type"], "model": wanted["model"]}
    if weight is not None:
        first["weight"] = weight
    table = first | {key: value for key, value in wanted.items() if key not in first}
    holder = _holder(configuration, *path, template_variant)
    return configuration.replacing(
        holder.with_table((*path, variant), table, after=(*path, template_variant))
    )


def _with_model(
    configuration: Configuration, model: ServedModel, function: str, template_variant: str
) -> Configuration:
    model.check()
    there, table = configuration.get("models", model.name), model.table()
    if there is not None:
        if there == table:
            return configuration
        raise RequestError(
            f"the configuration has another model {model.name!r}", hint="choose another name with --name"
        )
    holder = configuration.holder("models") or _holder(
        configuration, "functions", function, "variants", template_variant
    )
    path = ("models", model.name)
    after = ("models",) if holder.get(("models",)) else ()  # follow the last model of the file
    changed = holder.with_table(path, {"routing": table["routing"]}, after=after)
    provider = (*path, "providers", model.provider)
    changed = changed.with_table(provider, table["providers"][model.provider], after=path)
    return configuration.replacing(changed)


def _holder(configuration: Configuration, *names: str) -> TomlFile:
    found = configuration.holder(*names)
    assert found is not None
    return found
