"""Describe a TensorZero database in numbers that fit on a screen, however large it is.

The database counts, and its answers are bounded. Numbers that cost its server too much time or memory are
left out and named.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from trajkit.schema import FeedbackKind, MetricLevel
from trajkit.sources.access import LimitReached
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect.database import TensorZero
from trajkit.sources.tensorzero.export.config import ConfiguredMetric
from trajkit.sources.tensorzero.look.models import (
    DatabaseLook,
    FunctionLook,
    MetricLook,
    Quantiles,
    TagLook,
    Threshold,
    VariantLook,
)
from trajkit.sources.tensorzero.look.queries import (
    MOST_VALUES,
    QUANTILES,
    LookTables,
    counts_query,
    feedback_query,
    functions_query,
    kept_query,
    levels_query,
    quantiles_query,
    tags_query,
    variants_query,
)

MOST_FUNCTIONS = 30
"""Maximum number of listed functions; the others are only counted."""
MOST_VARIANTS = 200
MOST_TAGS = 50
MOST_METRICS = 20
"""Maximum number of metrics whose values are read: those with the most feedback."""

Found = TypeVar("Found")
_Counts = tuple[int | None, int | None, int | None, int | None]


def look(database: TensorZero) -> DatabaseLook:
    """Describe a database.

    Args:
        database: The database.

    Raises:
        ServiceError: It is not a TensorZero database, or failed. If a query took too much time or memory, its
            numbers are missing instead, and `DatabaseLook.unknown` has the reason.
    """
    database.check(ExportRequest())
    return _Look(database).everything()


class _Look:
    """One description; numbers that could not be found are recorded by name."""

    def __init__(self, database: TensorZero) -> None:
        self._database = database
        self._tables = LookTables(database.dialect)
        self._query = database.dialect.connection.query
        self._unknown: dict[str, str] = {}

    def everything(self) -> DatabaseLook:
        about = self._database.describe()
        no_counts: _Counts = (None, None, None, None)
        n_inferences, n_episodes, first_ms, last_ms = self._known("counts", self._counts, no_counts)
        nothing: tuple[tuple[Any, ...], int | None] = ((), None)
        functions, n_functions = self._known("functions", self._functions, nothing)
        metrics, n_metrics = self._known("metrics", self._metrics, nothing)
        tags, n_tags = self._known("tags", self._tags, nothing)
        no_feedback: dict[str, int] = {}
        return DatabaseLook(
            kind=str(about["kind"]),
            url=str(about["url"]),
            schema_level=about.get("schema_level"),
            n_inferences=n_inferences,
            n_episodes=n_episodes,
            first_at=_moment(first_ms),
            last_at=_moment(last_ms),
            n_text_bytes=self._known("size", self._database.text_bytes, None) or None,
            n_feedback=self._known("feedback", self._feedback, no_feedback),
            functions=functions,
            n_functions=n_functions,
            metrics=metrics,
            n_metrics=n_metrics,
            tags=tags,
            n_tags=n_tags,
            unknown=self._unknown,
        )

    def _known(self, what: str, find_out: Callable[[], Found], otherwise: Found) -> Found:
        try:
            return find_out()
        except LimitReached as error:
            self._unknown[what] = error.message
            return otherwise

    def _counts(self) -> _Counts:
        ((n_inferences, n_episodes, first_ms, last_ms),) = self._query(counts_query(self._tables), {})
        return n_inferences, n_episodes, *((first_ms, last_ms) if n_inferences else (None, None))

    def _feedback(self) -> dict[str, int]:
        return {kind: int(n) for kind, n in self._query(feedback_query(self._tables))}

    # -- functions -------------------------------------------------------------------------------------------

    def _functions(self) -> tuple[tuple[FunctionLook, ...], int | None]:
        rows = self._query(functions_query(self._tables, MOST_FUNCTIONS))
        variants = self._variants()
        found = tuple(
            FunctionLook(
                name=name,
                function_type=function_type,
                n_inferences=n_inferences,
                n_episodes=n_episodes,
                first_at=_moment(first_ms),
                last_at=_moment(last_ms),
                variants=tuple(variant for function, variant in variants if function == name),
            )
            for name, function_type, n_inferences, n_episodes, first_ms, last_ms, _ in rows
        )
        return found, rows[0][-1] if rows else 0

    def _variants(self) -> list[tuple[str, VariantLook]]:
        rows = self._query(variants_query(self._tables, MOST_VARIANTS))
        return [
            (
                function,
                VariantLook(
                    name=name,
                    n_inferences=n_inferences,
                    n_episodes=n_episodes,
                    first_at=_moment(first_ms),
                    last_at=_moment(last_ms),
                ),
            )
            for function, name, n_inferences, n_episodes, first_ms, last_ms, _ in rows
        ]

    # -- metrics ---------------------------------------------------------------------------------------------

    def _metrics(self) -> tuple[tuple[MetricLook, ...], int | None]:
        configured = self._database.metrics()
        rows = self._query(levels_query(self._tables, MOST_METRICS))
        names = [row[0] for row in rows]
        no_quantiles: dict[str, Quantiles] = {}
        quantiles = self._known("quantiles of metrics", lambda: self._quantiles(names), no_quantiles)
        metrics = [
            _metric(
                name,
                kind,
                configured.get(name),
                n_targets=n_targets,
                n_episodes=n_episodes,
                n_inferences=n_inferences,
                quantiles=quantiles.get(name),
            )
            for name, kind, n_targets, n_episodes, n_inferences, _ in rows
        ]
        kept = self._known("what thresholds keep", lambda: self._kept(metrics), metrics)
        logged = rows[0][-1] if rows else 0
        never = sorted(set(configured) - set(names)) if logged <= MOST_METRICS else []
        return (*kept, *(_metric(name, configured[name].kind, configured[name]) for name in never)), (
            logged + len(never)
        )

    def _quantiles(self, names: list[str]) -> dict[str, Quantiles]:
        if not names:
            return {}
        rows = self._query(
            quantiles_query(self._tables, len(names)), {f"name_{i}": name for i, name in enumerate(names)}
        )
        return {
            name: Quantiles(**dict(zip(QUANTILES, map(float, values), strict=True))) for name, values in rows
        }

    def _kept(self, metrics: list[MetricLook]) -> list[MetricLook]:
        """How many episodes an export with each bound would keep."""
        asked = [metric for metric in metrics if metric.level is not None and metric.quantiles is not None]
        bounds = [_bounds(metric) for metric in asked]
        if not asked:
            return metrics
        rows = self._query(
            kept_query(
                self._tables,
                [(metric.is_minimized, some) for metric, some in zip(asked, bounds, strict=True)],
            ),
            {f"name_{i}": metric.name for i, metric in enumerate(asked)},
        )
        counts = {name: numbers for name, *numbers in rows}
        found = {}
        for metric, some in zip(asked, bounds, strict=True):
            n_measured, *kept = counts.get(metric.name, [0] * (MOST_VALUES + 1))
            found[metric.name] = metric.model_copy(
                update={
                    "n_episodes_kept": n_measured,
                    "thresholds": tuple(
                        Threshold(value=value, n_episodes=n) for value, n in zip(some, kept, strict=False)
                    ),
                }
            )
        return [found.get(metric.name, metric) for metric in metrics]

    # -- tags ------------------------------------------------------------------------------------------------

    def _tags(self) -> tuple[tuple[TagLook, ...], int | None]:
        rows = self._query(tags_query(self._tables, MOST_TAGS))
        by_key: dict[str, TagLook] = {}
        for key, value, n, n_values, n_inferences, _ in rows:
            before = by_key.get(key)
            by_key[key] = TagLook(
                key=key,
                n_inferences=n_inferences,
                n_values=n_values,
                values={**(before.values if before else {}), value: n},
            )
        return tuple(by_key.values()), rows[0][-1] if rows else 0


def _metric(
    name: str,
    kind: str,
    configured: ConfiguredMetric | None,
    *,
    n_targets: int = 0,
    n_episodes: int = 0,
    n_inferences: int = 0,
    quantiles: Quantiles | None = None,
) -> MetricLook:
    """Return a metric's level: the data decide, as for an export; else the configuration."""
    level = configured.level if configured else None
    if n_episodes and n_inferences:
        level = None
    elif n_episodes or n_inferences:
        level = MetricLevel.EPISODE if n_episodes else MetricLevel.INFERENCE
    return MetricLook(
        name=name,
        kind=kind,
        level=level,
        optimize=configured.optimize if configured else None,
        n_targets=n_targets,
        n_on_episodes=n_episodes,
        n_on_inferences=n_inferences,
        quantiles=quantiles,
    )


def _bounds(metric: MetricLook) -> list[float]:
    """Return useful bounds: for a boolean true or false, else the values that 10 % to 90 % reach."""
    if metric.kind == FeedbackKind.BOOLEAN:
        return [0.0 if metric.is_minimized else 1.0]
    if metric.quantiles is None:
        return []
    least, most = metric.quantiles.least, metric.quantiles.most
    # at most three significant digits, so that a person can type it
    rounded = {float(f"{value:.3g}") for value in metric.quantiles.model_dump().values()}
    useless = most if metric.is_minimized else least  # it keeps all measured values
    return sorted(value for value in rounded if least <= value <= most and value != useless)


def _moment(ms: int | None) -> datetime | None:
    if ms is None or not math.isfinite(ms):
        return None
    try:
        return datetime.fromtimestamp(int(ms) / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
