"""The description of a TensorZero database in `trajkit info`."""

from __future__ import annotations

from trajkit._core.output.result import Result
from trajkit.schema import Model
from trajkit.schema.base import UtcTime


class VariantLook(Model):
    """A variant of a function."""

    name: str
    """Its name."""
    n_inferences: int
    """Inferences that it made."""
    n_episodes: int
    """Episodes that they belong to."""
    first_at: UtcTime | None
    """Time of the first of them."""
    last_at: UtcTime | None
    """Time of the last of them."""


class FunctionLook(VariantLook):
    """A function."""

    function_type: str
    """`chat` or `json`."""
    variants: tuple[VariantLook, ...]
    """Its variants, most inferences first."""


class Quantiles(Model):
    """Quantiles of the measured values; each of them was measured."""

    least: float
    p10: float
    p25: float
    median: float
    p75: float
    p90: float
    most: float


class Threshold(Model):
    """A bound, and the episodes that an export with it keeps."""

    value: float
    """The bound: the smallest value that passes, or the largest if the metric is minimised."""
    n_episodes: int
    """Episodes that an export with this bound alone keeps."""


class MetricLook(Model):
    """A metric."""

    name: str
    """Its name."""
    kind: str
    """`float` or `boolean`."""
    level: str | None
    """`episode` or `inference`; None when it was logged on both, or only on missing ones."""
    optimize: str | None
    """`max` or `min`; None when no configuration has it."""
    n_targets: int
    """Episodes and inferences that it was logged about; the latest value of each counts."""
    n_on_episodes: int
    """Those of them that are episodes of this database."""
    n_on_inferences: int
    """Those of them that are inferences of this database."""
    quantiles: Quantiles | None
    """Of the latest values; a boolean is 0 or 1. None without values, or if it was too much work."""
    n_episodes_kept: int | None = None
    """Episodes of an export that requires only this metric; None when it was too much work."""
    thresholds: tuple[Threshold, ...] = ()
    """The effects of bounds, in the order of their values."""

    @property
    def is_minimized(self) -> bool:
        """Whether small values are good."""
        return self.optimize == "min"


class TagLook(Model):
    """A key of the inferences' tags."""

    key: str
    """The key."""
    n_inferences: int
    """Inferences that carry it."""
    n_values: int
    """Different values."""
    values: dict[str, int]
    """The most frequent values, each with its inferences."""


class DatabaseLook(Model, Result):
    """A TensorZero database."""

    kind: str
    """Its kind of source."""
    url: str
    """Its address without credentials."""
    schema_level: int | str | None
    """The newest migration of its schema; None if unknown."""
    n_inferences: int | None
    """Inferences; None when counting was too much work, here and below."""
    n_episodes: int | None
    """Episodes."""
    first_at: UtcTime | None
    """Time of the first inference; None when there is none."""
    last_at: UtcTime | None
    """Time of the last inference."""
    n_text_bytes: int | None
    """Approximate bytes of text in inputs, prompts and answers; None if unknown."""
    n_feedback: dict[str, int]
    """Rows of feedback by kind."""
    functions: tuple[FunctionLook, ...]
    """Its functions, most inferences first."""
    n_functions: int | None
    """Number of its functions, including unlisted ones."""
    metrics: tuple[MetricLook, ...]
    """Its metrics, most measured first; last those that are configured and were never logged."""
    n_metrics: int | None
    """How many there are."""
    tags: tuple[TagLook, ...]
    """Keys of its tags, most frequent first."""
    n_tags: int | None
    """How many there are."""
    unknown: dict[str, str]
    """Numbers that were too much work for the server, and why."""

    def __str__(self) -> str:
        from trajkit.sources.tensorzero.look.text import text

        return text(self)
