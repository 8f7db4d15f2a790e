"""The metrics of several stores: what they agree on, and the columns that each lacks."""

from __future__ import annotations

from collections.abc import Sequence

from trajkit.errors import DataError
from trajkit.schema import FeedbackKind, Metric, MetricLevel
from trajkit.store.layout import quoted
from trajkit.store.reader import Store

_LEVELS = {"episodes": MetricLevel.EPISODE, "steps": MetricLevel.INFERENCE}
_SQL_TYPES = {FeedbackKind.FLOAT: "DOUBLE", FeedbackKind.BOOLEAN: "BOOLEAN"}


def all_metrics(stores: Sequence[Store]) -> tuple[Metric, ...]:
    """Every metric of any store; what one knows about it and another does not is known.

    Raises:
        DataError: A metric is a number here and a yes or no there, or better high here and low there.
    """
    found: dict[tuple[MetricLevel, str], tuple[Metric, Store]] = {}
    for store in stores:
        for metric in store.manifest.metrics:
            known, of = found.setdefault((metric.level, metric.name), (metric, store))
            for what in ("kind", "optimize"):
                one, other = getattr(known, what), getattr(metric, what)
                if one != other and None not in (one, other):
                    raise DataError(
                        f"metric {metric.name!r} on {metric.level}s is {_word(one)} in {of.path}"
                        f" and {_word(other)} in {store.path}",
                        hint="a store has one meaning for a metric; export them with other names or times",
                    )
            if known.optimize is None and metric.optimize is not None:
                found[metric.level, metric.name] = (metric, store)
    return tuple(metric for metric, _ in found.values())


def _word(value: str) -> str:
    words = {
        FeedbackKind.FLOAT: "a number",
        FeedbackKind.BOOLEAN: "a yes or no",
        "max": "better when high",
        "min": "better when low",
    }
    return words.get(value, value)


def columns_of(metrics: Sequence[Metric]) -> list[tuple[str, str, str]]:
    """What these metrics make of the columns of a store."""
    return sorted((metric.level, metric.name, metric.kind) for metric in metrics)


def with_metrics(table: str, store: Store, metrics: Sequence[Metric]) -> str:
    """SQL for the columns of a table of a store, with a null for each metric that only others have."""
    level = _LEVELS[table]
    own = {metric.name for metric in store.manifest.metrics if metric.level == level}
    fields = []
    for metric in metrics:
        if metric.level == level:
            name, nothing = quoted(metric.name), f"CAST(NULL AS {_SQL_TYPES[metric.kind]})"
            fields.append(f"{name} := {f'metrics.{name}' if metric.name in own else nothing}")
    if not fields:
        return "*"
    struct = f"struct_pack({', '.join(fields)}) AS metrics"
    return f"* REPLACE ({struct})" if own else f"*, {struct}"
