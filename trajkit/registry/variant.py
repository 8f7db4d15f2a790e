"""A tuned model as a new variant of a function, that gets no traffic unless somebody says so.

TensorZero samples the variants of a function evenly where nothing else is said: a variant that is merely
added takes its share of production. So what is written always says how traffic goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from trajkit.errors import ConfigError, RequestError
from trajkit.registry.configuration import Configuration
from trajkit.registry.toml_file import TomlFile
from trajkit.schema import Model
from trajkit.schema.base import Name

_RESERVED = ("tensorzero::", "openai::", "anthropic::", "fireworks::", "together::", "dummy::")


class ServedModel(Model):
    """A model that an OpenAI-compatible server answers for."""

    name: Name
    """What the configuration calls it."""
    model_name: Name
    """What the server calls it."""
    api_base: Name
    """The server, such as `http://127.0.0.1:8000/v1/`."""
    api_key_location: Name = "none"
    """Where the gateway finds the key: `none`, or such as `env::MY_KEY`."""

    def table(self) -> dict[str, Any]:
        """What stands in `[models.NAME]`."""
        provider = self.model_dump(exclude={"name"})
        return {"routing": ["trajkit"], "providers": {"trajkit": {"type": "openai", **provider}}}


class Registered(NamedTuple):
    """A configuration with the variant in it."""

    configuration: Configuration
    """All files, those that changed and the others."""
    notes: tuple[str, ...]
    """What a user should know."""


def register(
    configuration: Configuration,
    *,
    function: str,
    template_variant: str,
    variant: str,
    model: str | ServedModel,
    traffic: float | None = None,
) -> Registered:
    """Add a variant that says what another one says, to another model. Doing it twice changes nothing.

    Args:
        configuration: The files.
        function: Whose variant.
        template_variant: The variant whose prompts the model was trained on.
        variant: Name of the new one.
        model: A hosted model as the gateway names it, such as `openai::ft:…`, or one behind a server.
        traffic: Share of the function's traffic that it gets, above 0 and below 1; None for none.

    Raises:
        RequestError: There is no such function or variant, the name is taken, or the share makes no sense.
        ConfigError: How the configuration directs traffic cannot be kept.
    """
    if traffic is not None and not 0 < traffic < 1:
        raise RequestError(f"a share of {traffic:g}; it is above 0 and below 1", hint="such as --traffic 5%")
    variants = _variants(configuration, function)
    template = variants.get(template_variant)
    if template is None:
        raise RequestError(
            f"function {function!r} has no variant {template_variant!r}",
            hint=f"its variants: {', '.join(sorted(variants)) or 'none'}",
        )
    if template.get("type") != "chat_completion":
        raise RequestError(
            f"variant {template_variant!r} is of type {template.get('type')!r}",
            hint="a tuned model takes the prompts of a chat_completion variant",
        )
    name = model if isinstance(model, str) else model.name
    wanted = {key: value for key, value in template.items() if key != "weight"} | {"model": name}
    notes: list[str] = []
    if isinstance(model, ServedModel):
        configuration = _with_model(configuration, model, function, template_variant)
    there = variants.get(variant)
    if there is not None:
        if {key: value for key, value in there.items() if key != "weight"} != wanted:
            raise RequestError(
                f"function {function!r} has a variant {variant!r} that says something else",
                hint="choose another name with --variant",
            )
        return Registered(configuration, (f"variant {variant!r} is there already",))
    configuration = _directed(configuration, function, variants, variant, traffic, notes)
    weight = _weight(variants, traffic) if _uses_weights(configuration, function, variants) else None
    holder = configuration.holder("functions", function, "variants", template_variant)
    assert holder is not None
    path = ("functions", function, "variants")
    table = _in_order(wanted, weight)
    changed = holder.with_table((*path, variant), table, after=(*path, template_variant))
    return Registered(configuration.replacing(changed), tuple(notes))


def _variants(configuration: Configuration, function: str) -> dict[str, dict[str, Any]]:
    functions = configuration.get("functions") or {}
    if function not in functions:
        known = ", ".join(sorted(functions)) or "none"
        raise RequestError(f"no function {function!r} in the configuration", hint=f"functions: {known}")
    found: dict[str, dict[str, Any]] = functions[function].get("variants") or {}
    return found


def _in_order(wanted: Mapping[str, Any], weight: float | None) -> dict[str, Any]:
    """Type and model first, as people write them."""
    first = {"type": wanted["type"], "model": wanted["model"]}
    if weight is not None:
        first["weight"] = weight
    return first | {key: value for key, value in wanted.items() if key not in first}


def _with_model(
    configuration: Configuration, model: ServedModel, function: str, template_variant: str
) -> Configuration:
    if model.name.startswith(_RESERVED):
        raise RequestError(f"the model name {model.name!r} begins with a prefix that the gateway keeps")
    there = configuration.get("models", model.name)
    if there is not None:
        if there == model.table():
            return configuration
        raise RequestError(f"the configuration has another model {model.name!r}", hint="choose another name")
    holder = configuration.holder("functions", function, "variants", template_variant)
    assert holder is not None
    table = model.table()
    changed = holder.with_table(("models", model.name), {"routing": table["routing"]})
    provider = ("models", model.name, "providers", "trajkit")
    changed = changed.with_table(provider, table["providers"]["trajkit"], after=("models", model.name))
    return configuration.replacing(changed)


def _uses_weights(
    configuration: Configuration, function: str, variants: Mapping[str, Mapping[str, Any]]
) -> bool:
    has_block = configuration.get("functions", function, "experimentation") is not None
    return not has_block and any("weight" in variant for variant in variants.values())


def _weight(variants: Mapping[str, Mapping[str, Any]], traffic: float | None) -> float:
    return _share(sum(float(variant.get("weight") or 0) for variant in variants.values()), traffic)


def _share(others: float, traffic: float | None) -> float:
    """The weight that has this share beside the others' weights; 0 for none."""
    return 0.0 if traffic is None else round(traffic / (1 - traffic) * others, 9)


def _directed(
    configuration: Configuration,
    function: str,
    variants: Mapping[str, Mapping[str, Any]],
    variant: str,
    traffic: float | None,
    notes: list[str],
) -> Configuration:
    """The configuration with what says how traffic goes once the variant is there."""
    path = ("functions", function, "experimentation")
    block = configuration.get(*path)
    if _uses_weights(configuration, function, variants):
        notes.append(f"the function's variants have weights: the new one gets {_weight(variants, traffic):g}")
        return configuration
    if block is None:
        candidates = dict.fromkeys(sorted(variants), 1.0)
        if traffic is not None:
            candidates[variant] = _share(float(len(candidates)), traffic)
        file = _function_file(configuration, function)
        table = {"type": "static", "candidate_variants": _inline(candidates)}
        notes.append(
            "the gateway sampled the variants evenly: the same is now written down, so that the new one gets"
            f" {'no traffic' if traffic is None else f'{traffic:.0%}'}"
        )
        return configuration.replacing(file.with_table(path, table, after=("functions", function)))
    return _within(configuration, path, block, variants, variant, traffic, notes)


def _within(
    configuration: Configuration,
    path: tuple[str, ...],
    block: Mapping[str, Any],
    variants: Mapping[str, Mapping[str, Any]],
    variant: str,
    traffic: float | None,
    notes: list[str],
) -> Configuration:
    """The same where an experimentation block says it."""
    candidates = block.get("candidate_variants")
    if candidates is None:
        raise ConfigError(
            f"[{'.'.join(path)}] of type {block.get('type')!r} gives every variant traffic",
            hint="name its candidate_variants first, so that a new variant is not one of them",
        )
    if traffic is None:
        notes.append(f"[{'.'.join(path)}] does not name the new variant: it gets no traffic")
        return configuration
    if block.get("type") != "static":
        raise ConfigError(
            f"[{'.'.join(path)}] of type {block.get('type')!r} decides by itself how traffic goes",
            hint="leave --traffic out, and add the variant to its candidate_variants when it shall take part",
        )
    weights = dict(candidates) if isinstance(candidates, Mapping) else dict.fromkeys(candidates, 1.0)
    weights[variant] = _share(sum(map(float, weights.values())), traffic)
    file = configuration.holder(*path)
    assert file is not None
    notes.append(f"[{'.'.join(path)}] gives the new variant {traffic:.0%}")
    return configuration.replacing(file.with_value((*path, "candidate_variants"), _inline(weights)))


def _function_file(configuration: Configuration, function: str) -> TomlFile:
    """Where the function itself is described, else where anything of it is."""
    found = configuration.holder("functions", function, "type") or configuration.holder("functions", function)
    assert found is not None
    return found


def _inline(values: Mapping[str, float]) -> Any:
    import tomlkit

    table = tomlkit.inline_table()
    for name, value in values.items():
        table[name] = value
    return table


def changed_files(before: Configuration, after: Configuration) -> Iterator[tuple[TomlFile, TomlFile]]:
    """The files that a registration changed, each before and after."""
    for old, new in zip(before.files, after.files, strict=True):
        if old.text != new.text:
            yield old, new
