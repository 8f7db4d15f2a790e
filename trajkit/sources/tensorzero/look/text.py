"""Format the description of a TensorZero database as `trajkit info` prints it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trajkit._core.output.console import Cell, count, line, plural, size, table_text

if TYPE_CHECKING:
    from datetime import datetime

    from trajkit.sources.tensorzero.look.models import DatabaseLook, FunctionLook, MetricLook, VariantLook

_KINDS = {
    "tensorzero-clickhouse": "ClickHouse",
    "tensorzero-postgres": "Postgres",
    "tensorzero-archive": "archive",
}
_LONGEST_VALUE = 40
"""Characters of a tag's value that are shown."""


def text(look: DatabaseLook) -> str:
    """Return the description of a database as `trajkit info` prints it."""
    tables = (_functions(look), _metrics(look), _thresholds(look), _tags(look))
    return "\n\n".join(("\n".join(map(line, _lines(look))), *filter(None, tables)))


def _lines(look: DatabaseLook) -> Iterator[str]:
    level = "" if look.schema_level is None else f", schema level {look.schema_level}"
    yield f"{look.url}: TensorZero, {_KINDS.get(look.kind, look.kind)}{level}"
    if look.n_inferences is not None and look.n_episodes is not None:
        texts = f"  {size(look.n_text_bytes)} of text" if look.n_text_bytes else ""
        counts = plural(look.n_inferences, "inference"), plural(look.n_episodes, "episode")
        yield f"{'  '.join(counts)}{texts}"
    if look.first_at is not None and look.last_at is not None:
        yield f"from      {_time(look.first_at)} to {_time(look.last_at)}"
    feedback = ", ".join(f"{kind} {count(n)}" for kind, n in look.n_feedback.items())
    yield f"feedback  {feedback or 'none'}"


def _functions(look: DatabaseLook) -> str:
    if not look.functions:
        return ""
    numbers = [Cell(heading, is_number=True) for heading in ("inferences", "episodes")]
    rows = []
    for function in look.functions:
        rows.append((function.name, function.function_type, *_counted(function)))
        rows += [(f"  {variant.name}", "", *_counted(variant)) for variant in function.variants]
    shown = table_text(
        [
            Cell("function, variant"),
            Cell("type"),
            *numbers,
            Cell("first"),
            Cell("last"),
        ],
        rows,
    )
    return shown + _more(look.n_functions, len(look.functions), "function")


def _counted(one: FunctionLook | VariantLook) -> tuple[str, str, str, str]:
    return (
        count(one.n_inferences),
        count(one.n_episodes),
        "-" if one.first_at is None else f"{one.first_at:%Y-%m-%d}",
        "-" if one.last_at is None else f"{one.last_at:%Y-%m-%d}",
    )


def _metrics(look: DatabaseLook) -> str:
    if not look.metrics:
        return ""
    headings = ("measured", "min", "10%", "25%", "median", "75%", "90%", "max")
    shown = table_text(
        [
            Cell("metric"),
            Cell("type"),
            Cell("of"),
            Cell("best"),
            *(Cell(heading, is_number=True) for heading in headings),
        ],
        [
            (
                metric.name,
                metric.kind,
                _level(metric),
                metric.optimize or "?",
                count(metric.n_targets),
                *_quantiles(metric),
            )
            for metric in look.metrics
        ],
    )
    return shown + _more(look.n_metrics, len(look.metrics), "metric")


def _level(metric: MetricLook) -> str:
    if metric.level is not None:
        return metric.level
    return "both" if metric.n_on_episodes and metric.n_on_inferences else "?"


def _quantiles(metric: MetricLook) -> list[str]:
    if metric.quantiles is None:
        return ["-"] * 7
    return [f"{value:.4g}" for value in metric.quantiles.model_dump().values()]


def _thresholds(look: DatabaseLook) -> str:
    rows = []
    for metric in look.metrics:
        if metric.n_episodes_kept is None:
            continue
        name = metric.name
        bound = "--max" if metric.is_minimized else "--min"
        rows.append((name, "", count(metric.n_episodes_kept)))
        rows += [
            ("", f"{bound} {threshold.value:g}", count(threshold.n_episodes))
            for threshold in metric.thresholds
        ]
    if not rows:
        return ""
    cells = [Cell("export --metric"), Cell("bound"), Cell("episodes kept", is_number=True)]
    return table_text(cells, rows)


def _tags(look: DatabaseLook) -> str:
    if not look.tags:
        return ""
    numbers = [Cell(heading, is_number=True) for heading in ("inferences", "values")]
    shown = table_text(
        [Cell("tag"), *numbers, Cell("most frequent")],
        [
            (
                tag.key,
                count(tag.n_inferences),
                count(tag.n_values),
                ", ".join(f"{_short(value)} ({count(n)})" for value, n in tag.values.items()),
            )
            for tag in look.tags
        ],
    )
    return shown + _more(look.n_tags, len(look.tags), "tag")


def _short(value: str) -> str:
    return value if len(value) <= _LONGEST_VALUE else f"{value[: _LONGEST_VALUE - 1]}…"


def _more(n: int | None, n_listed: int, noun: str) -> str:
    return f"\n… and {plural(n - n_listed, noun)} more" if n is not None and n > n_listed else ""


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
