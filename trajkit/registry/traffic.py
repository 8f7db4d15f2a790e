"""Keep a function's traffic unchanged when a variant is added, except for the requested share.

TensorZero samples the variants of a function evenly by default, so a new variant would get an equal share of
production traffic. Therefore the written configuration always sets the traffic explicitly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trajkit.errors import ConfigError, RequestError
from trajkit.registry.toml_file import Configuration, TomlFile

Table = Mapping[str, Any]

_WEIGHED = ("static", "static_weights")
_NO_WEIGHTS_TOO = "the gateway takes one of the two: remove the weights, or the experimentation"


class Place(NamedTuple):
    """A table of a configuration that controls traffic."""

    path: tuple[str, ...]
    """Path of the table: of the function, or of a namespace."""
    block: Table
    """Content of the table."""

    @property
    def title(self) -> str:
        """The header of the table."""
        return f"[{'.'.join(self.path)}]"

    @property
    def takes_all(self) -> bool:
        """Whether every variant of the function gets traffic without being named."""
        return not {"candidate_variants", "fallback_variants"} & self.block.keys()


def check_share(traffic: float | None) -> None:
    """Refuse an invalid share.

    Raises:
        RequestError: It is below 0, or 1 or more.
    """
    if traffic is not None and not 0 <= traffic < 1:
        raise RequestError(
            f"a share of {traffic:g}; it must be from 0 to below 1",
            hint="such as --traffic 5%, or --traffic 0",
        )


def uses_weights(configuration: Configuration, function: str) -> bool:
    """Check whether the variants themselves have weights.

    Raises:
        ConfigError: They do, and there is also an experimentation table.
    """
    weighed = [name for name, each in _variants(configuration, function).items() if "weight" in each]
    place = _place(configuration, function)
    if weighed and place is not None:
        raise ConfigError(
            f"function {function!r} sets its traffic twice: {place.title}, and the weight of"
            f" {', '.join(sorted(weighed))}",
            hint=_NO_WEIGHTS_TOO,
        )
    return bool(weighed)


def weight_of(configuration: Configuration, function: str, variant: str, traffic: float | None) -> float:
    """Return the variant's weight for a share of traffic, where variants have weights; 0 for no share.

    Raises:
        ConfigError: No other variant has a weight.
    """
    others = [each for name, each in _variants(configuration, function).items() if name != variant]
    total = sum(float(each.get("weight") or 0) for each in others)
    if traffic and not total:
        raise ConfigError(
            f"no variant of function {function!r} has a weight above 0, so no share can be computed",
            hint="leave --traffic out, and set the weights in the file",
        )
    return _beside(total, traffic)


def directed(
    configuration: Configuration, function: str, variant: str, traffic: float | None
) -> tuple[Configuration, tuple[str, ...]]:
    """Return a configuration in which a variant gets exactly this share of the traffic.

    Args:
        configuration: Configuration with or without the variant; no variant has a weight.
        function: Function of the variant.
        variant: Name of the variant.
        traffic: Share from 0 to below 1; None for its current share.

    Returns:
        The configuration, and notes for the user.

    Raises:
        ConfigError: The configuration's traffic settings cannot be kept.
    """
    if _place(configuration, function) is None:
        return _with_explicit_table(configuration, function, variant, traffic)
    notes: list[str] = []
    for place in _places(configuration, function):
        if place.takes_all:
            configuration = _named(configuration, function, variant, place)
            notes.append(f"{place.title} sampled every variant: now it names the existing ones")
    base = _place(configuration, function)
    assert base is not None
    if traffic is not None:
        configuration = _shared(configuration, variant, traffic, base)
    return configuration, tuple(notes)


def share_of(configuration: Configuration, function: str, variant: str) -> float | None:
    """Return a variant's share of a function's traffic; None if the gateway decides by itself."""
    variants, place = _variants(configuration, function), _place(configuration, function)
    if place is None and uses_weights(configuration, function):
        weights = {name: float(each.get("weight") or 0) for name, each in variants.items()}
    elif place is None or place.takes_all:
        weights = dict.fromkeys(variants, 1.0)
    else:
        weights = _weights(place)
        if place.block.get("type") not in (*_WEIGHED, "uniform") and variant in weights:
            return None
    total = sum(weights.values())
    return weights.get(variant, 0.0) / total if total else 0.0


def _variants(configuration: Configuration, function: str) -> dict[str, dict[str, Any]]:
    return configuration.get("functions", function, "variants") or {}


def _place(configuration: Configuration, function: str) -> Place | None:
    path = ("functions", function, "experimentation")
    block = configuration.get(*path)
    return None if block is None else Place(path, block)


def _places(configuration: Configuration, function: str) -> Iterator[Place]:
    """Yield the table of the function, and those of its namespaces."""
    base = _place(configuration, function)
    if base is not None:
        yield base
        for name, block in (base.block.get("namespaces") or {}).items():
            yield Place((*base.path, "namespaces", name), block)


def _weights(place: Place) -> dict[str, float]:
    named = place.block.get("candidate_variants") or {}
    return dict(named) if isinstance(named, Mapping) else dict.fromkeys(named, 1.0)


def _beside(others: float, traffic: float | None) -> float:
    """Return the weight that gives this share next to the others' weights; 0 for none."""
    return 0.0 if not traffic else round(traffic / (1 - traffic) * others, 9)


def _evenly(others: Sequence[str], variant: str, traffic: float | None) -> dict[str, float]:
    """Return even weights of variants, next to a variant with its own share."""
    if not traffic:
        return dict.fromkeys(others, 1.0)
    return dict.fromkeys(others, round((1 - traffic) / len(others), 9)) | {variant: traffic}


def _with_explicit_table(
    configuration: Configuration, function: str, variant: str, traffic: float | None
) -> tuple[Configuration, tuple[str, ...]]:
    """Write the even sampling of the existing variants as an explicit table."""
    others = sorted(
        name
        for name, each in _variants(configuration, function).items()
        if name != variant and each.get("namespace") is None
    )
    if not others:
        raise ConfigError(
            f"function {function!r} has no other variant to get its traffic",
            hint="write its experimentation table in the file",
        )
    path = ("functions", function, "experimentation")
    table = {"type": "static", "candidate_variants": inline(_evenly(others, variant, traffic))}
    changed = _function_file(configuration, function).with_table(path, table, after=("functions", function))
    note = (
        "the gateway sampled all variants evenly, including new ones: now a table names the sampled variants"
    )
    return configuration.replacing(changed), (note,)


def _named(configuration: Configuration, function: str, variant: str, place: Place) -> Configuration:
    """Return the configuration with a table that names its implicit variants."""
    namespace = place.path[-1] if "namespaces" in place.path else None
    names = sorted(
        name
        for name, each in _variants(configuration, function).items()
        if name != variant and each.get("namespace") in (None, namespace)
    )
    file = _holder(configuration, place)
    return configuration.replacing(file.with_value((*place.path, "candidate_variants"), names))


def _shared(configuration: Configuration, variant: str, traffic: float, place: Place) -> Configuration:
    """Return the configuration with a share for the variant in this table."""
    weights, kind = _weights(place), place.block.get("type")
    mine = weights.pop(variant, None)
    path = (*place.path, "candidate_variants")
    file = _holder(configuration, place)
    total = sum(map(float, weights.values()))
    if mine is not None and total and abs(mine / (mine + total) - traffic) < 1e-6:
        return configuration
    if kind not in (*_WEIGHED, "uniform"):
        if not traffic and mine is None:
            return configuration
        raise ConfigError(
            f"{place.title} of type {kind!r} decides by itself how traffic is split",
            hint="leave --traffic out, and change its candidate_variants in the file",
        )
    if not total:
        raise ConfigError(f"{place.title} samples no other variant", hint="name another candidate first")
    if not traffic:
        return configuration if mine is None else configuration.replacing(_without(file, path, variant))
    if isinstance(place.block["candidate_variants"], Mapping):
        share = _beside(total, traffic)
        if file.is_inline(path):
            return configuration.replacing(file.with_value(path, inline(weights | {variant: share})))
        return configuration.replacing(file.with_value((*path, variant), share))
    file = file.with_value(path, inline(_evenly(list(weights), variant, traffic)))
    return configuration.replacing(file.with_value((*place.path, "type"), "static"))


def _without(file: TomlFile, path: tuple[str, ...], variant: str) -> TomlFile:
    named = file.get(path)
    if isinstance(named, Mapping):
        return file.without((*path, variant))
    return file.with_value(path, [name for name in named if name != variant])


def _holder(configuration: Configuration, place: Place) -> TomlFile:
    found = configuration.holder(*place.path, "candidate_variants") or configuration.holder(*place.path)
    assert found is not None
    return found


def _function_file(configuration: Configuration, function: str) -> TomlFile:
    """Return the file with the function's own table, otherwise the first file with any part of it."""
    found = configuration.holder("functions", function, "type") or configuration.holder("functions", function)
    assert found is not None
    return found


def inline(values: Mapping[str, float]) -> Any:
    """Return values as an inline table, with spaces inside the braces."""
    import tomlkit

    inside = ", ".join(f"{tomlkit.key(name).as_string()} = {value!r}" for name, value in values.items())
    return tomlkit.value(f"{{ {inside} }}")
