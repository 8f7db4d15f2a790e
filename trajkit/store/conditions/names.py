"""The names that a condition on the episodes of a store may use, and the SQL behind each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import duckdb

from trajkit.schema import FeedbackKind, Metric, MetricLevel
from trajkit.store.conditions.nameable import Names
from trajkit.store.engine import literal
from trajkit.store.layout import METRICS, TABLES, quoted
from trajkit.store.reader import Store

STEP = "step."
"""Prefix of names for the columns of single steps."""

_SINGLE_SOURCE = "tensorzero"

LISTS = {"function": "function_names", "variant": "variant_names"}
"""Names for the functions or variants of an episode as one text: sorted, joined with `+`."""


def joined(names: str) -> str:
    """Return SQL of a list of names as one text; null when there is none."""
    return f"nullif(array_to_string({names}, '+'), '')"


def episode_metrics(store: Store) -> list[Metric]:
    """Return the metrics of episodes."""
    return [metric for metric in store.manifest.metrics if metric.level == MetricLevel.EPISODE]


def tag_sql(key: str) -> str:
    """Return SQL over `episodes` of a tag, whatever characters its key has."""
    return f"CAST(tags AS MAP(VARCHAR, VARCHAR))[{literal(key)}]"


def episode_columns(store: Store) -> dict[str, str]:
    """Return SQL over `episodes` of every column that a condition may name, except tags."""
    found = {column.name: quoted(column.name) for column in TABLES["episodes"] if column.sql_type != METRICS}
    found |= {name: joined(names) for name, names in LISTS.items()}
    return found | {f"metrics.{metric.name}": _metric_sql(store, metric) for metric in episode_metrics(store)}


def step_columns(store: Store) -> dict[str, str]:
    """Return SQL over `steps` of every column that a condition may name; names begin with `step.`."""
    found = {
        f"{STEP}{column.name}": quoted(column.name)
        for column in TABLES["steps"]
        if column.sql_type != METRICS and column.name != "episode_id"
    }
    return found | {
        f"{STEP}metrics.{metric.name}": _metric_sql(store, metric) for metric in _step_metrics(store)
    }


def names_of(
    store: Store,
    connection: duckdb.DuckDBPyConnection,
    *,
    more: Mapping[str, str] | None = None,
    patterns: Sequence[re.Pattern[str]] = (),
    with_steps: bool = False,
) -> tuple[Names, dict[str, str]]:
    """Return the names that a condition on episodes may use, and the SQL over `episodes` of each column.

    A bare name is a column, else one of `more`, else a metric; `metrics.NAME` and `tags.KEY` are never
    ambiguous.

    Args:
        store: The store.
        connection: Has its view `episodes`; the keys of the tags are read from it.
        more: Other names, to the column of each.
        patterns: Patterns of other names.
        with_steps: Whether columns of single steps may be named, too: `step.NAME`, and their metrics. Their
            SQL is over `steps`.
    """
    sql = episode_columns(store)
    own = {name: name for name in sql if not name.startswith("metrics.")}
    keys = connection.execute(
        "SELECT DISTINCT unnest(json_keys(tags)) AS key FROM episodes ORDER BY key"
    ).fetchall()
    tags = {key: f"tags.{key}" for (key,) in keys}
    metrics = {metric.name: f"metrics.{metric.name}" for metric in episode_metrics(store)}
    prefixes = {"tags": tags}
    if with_steps:
        of_steps = step_columns(store)
        sql |= of_steps
        prefixes["step"] = {name.removeprefix(STEP): name for name in of_steps}
        metrics = {metric.name: f"{STEP}metrics.{metric.name}" for metric in _step_metrics(store)} | metrics
    names = Names(
        {**metrics, **(more or {}), **own},
        patterns=patterns,
        prefixes={"metrics": metrics, **prefixes},
        singles=[
            metrics[metric.name]
            for metric in store.manifest.metrics
            if metric.name in metrics and _is_single(store, metric)
        ],
        where=str(store.path),
    )
    return names, {**sql, **{column: tag_sql(key) for key, column in tags.items()}}


def _step_metrics(store: Store) -> list[Metric]:
    return [metric for metric in store.manifest.metrics if metric.level == MetricLevel.INFERENCE]


def _is_single(store: Store, metric: Metric) -> bool:
    """Whether the source of a metric has it in single precision."""
    source = str(store.manifest.source.get("kind"))
    return metric.kind == FeedbackKind.FLOAT and source.startswith(_SINGLE_SOURCE)


def _metric_sql(store: Store, metric: Metric) -> str:
    value = f"metrics.{quoted(metric.name)}"
    return f"CAST({value} AS FLOAT)" if _is_single(store, metric) else value
