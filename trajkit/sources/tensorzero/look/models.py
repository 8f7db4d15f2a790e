"""What `trajkit info` says about a TensorZero database."""

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
    """Values that a share of the measured values do not exceed; each was measured."""

    least: float
    p10: float
    p25: float
    median: float
    p75: float
    p90: float
    most: float


class Threshold(Model):
    """A bound, and what an export with it keeps."""

    value: float
    """The bound: the smallest value that passes, or the largest where the metric is minimised."""
    n_episodes: int
    """Episodes that an export with this bound alone brings."""


class MetricLook(Model):
    """A metric."""

    name: str
    """Its name."""
    kind: str
    """`float` or `boolean`."""
    level: str | None
    """`episode` or `inference`; None when it was logged about both, or about nothing that is there."""
    optimize: str | None
    """`max` or `min`; None when no configuration tells."""
    n_targets: int
    """Episodes and inferences that it was logged about; the latest value of each counts."""
    n_on_episodes: int
    """Those of them that are episodes of this database."""
    n_on_inferences: int
    """Those of them that are inferences of this database."""
    quantiles: Quantiles | None
    """Of the latest values; of a boolean 0 and 1. None when there are none, or it was too much work."""
    n_episodes_kept: int | None = None
    """Episodes that an export brings which asks only for this metric; None when it was too much work."""
    thresholds: tuple[Threshold, ...] = ()
    """What bounds would keep, in the order of their values."""

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
    """What kind of source it is."""
    url: str
    """Where it is, without credentials."""
    schema_level: int | str | None
    """The newest migration of its schema; None when it does not tell."""
    n_inferences: int | None
    """Inferences; None when counting was too much work, here and below."""
    n_episodes: int | None
    """Episodes."""
    first_at: UtcTime | None
    """Time of the first inference; None when there is none."""
    last_at: UtcTime | None
    """Time of the last inference."""
    n_text_bytes: int | None
    """Bytes of text in inputs, prompts and answers, roughly; None when the database does not tell."""
    n_feedback: dict[str, int]
    """Rows of feedback by kind."""
    functions: tuple[FunctionLook, ...]
    """Its functions, most inferences first."""
    n_functions: int | None
    """How many there are; more than are listed when there are many."""
    metrics: tuple[MetricLook, ...]
    """Its metrics, most measured first; last those that are configured and were never logged."""
    n_metrics: int | None
    """How many there are."""
    tags: tuple[TagLook, ...]
    """Keys of its tags, most frequent first."""
    n_tags: int | None
    """How many there are."""
    unknown: dict[str, str]
    """What was too much work for the server, and why."""

    def __str__(self) -> str:
        from trajkit.sources.tensorzero.look.text import text

        return text(self)
