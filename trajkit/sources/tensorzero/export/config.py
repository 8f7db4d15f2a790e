"""Read the metrics and tools of a TensorZero configuration."""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple

from trajkit.schema.base import JsonObject


class ConfiguredMetric(NamedTuple):
    """A metric as a configuration declares it."""

    kind: str
    """`float` or `boolean`."""
    level: str | None
    """`episode` or `inference`; None when no configuration tells."""
    optimize: str | None
    """`max` or `min`; None when no configuration tells."""


def metrics_of(text: str) -> dict[str, ConfiguredMetric]:
    """The metrics of a configuration (TOML); none when it cannot be read.

    A snapshot that is not TOML is not worth failing an export for: the data tell a metric's level too.
    """
    return {
        name: ConfiguredMetric(metric.get("type", "float"), metric.get("level"), metric.get("optimize"))
        for name, metric in _tables(text, "metrics")
    }


def tools_of(text: str) -> dict[str, JsonObject]:
    """The tools of a configuration (TOML) by the name that functions use; none when it cannot be read.

    They look as TensorZero lists them with an inference: `description`, `parameters`, `name` (which the model
    is told, and may be another) and `strict`. One whose parameters are not in the configuration is left out.
    """
    found = {}
    for key, tool in _tables(text, "tools"):
        parameters = tool.get("parameters")
        if isinstance(parameters, dict) and isinstance(data := parameters.get("__data"), str):
            try:
                schema = json.loads(data)
            except json.JSONDecodeError:
                continue
            found[key] = {
                "description": tool.get("description", ""),
                "parameters": schema,
                "name": tool.get("name", key),
                "strict": tool.get("strict", False),
            }
    return found


def _tables(text: str, name: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The tables inside a table of a configuration."""
    declared = _parsed(text).get(name, {})
    return [(key, value) for key, value in declared.items() if isinstance(value, dict)]


@functools.lru_cache(maxsize=16)
def _parsed(text: str) -> Mapping[str, Any]:
    """Parse a configuration once for all that is read from it: that takes milliseconds."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}
