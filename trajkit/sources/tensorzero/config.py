"""What a TensorZero configuration says about its metrics."""

from __future__ import annotations

import tomllib
from typing import NamedTuple


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
    try:
        declared = tomllib.loads(text).get("metrics", {})
    except tomllib.TOMLDecodeError:
        return {}
    return {
        name: ConfiguredMetric(metric.get("type", "float"), metric.get("level"), metric.get("optimize"))
        for name, metric in declared.items()
        if isinstance(metric, dict)
    }
