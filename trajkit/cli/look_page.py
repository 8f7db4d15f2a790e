"""A TensorZero database as `trajkit info` prints it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trajkit._core import console

if TYPE_CHECKING:
    from datetime import datetime

    from trajkit.sources.tensorzero.look_models import DatabaseLook, FunctionLook, MetricLook, VariantLook

_KINDS = {
    "tensorzero-clickhouse": "ClickHouse",
    "tensorzero-postgres": "Postgres",
    "tensorzero-archive": "archive",
}
_LONGEST_VALUE = 40
"""Characters of a tag's value that are shown."""


def print_look(look: DatabaseLook) -> None:
    """Print it on stdout; on stderr what is missing."""
    for line in _lines(look):
        console.result(line)
    _functions(look)
    _metrics(look)
    _thresholds(look)
    _tags(look)
    for what, why in look.unknown.items():
        console.talk(f"not known: {what}: {why}")


def _lines(look: DatabaseLook) -> Iterator[str]:
    level = "" if look.schema_level is None else f", schema level {look.schema_level}"
    yield f"{look.url}: TensorZero, {_KINDS.get(look.kind, look.kind)}{level}"
    if look.n_inferences is not None and look.n_episodes is not None:
        text = f"  {console.size(look.n_text_bytes)} of text" if look.n_text_bytes else ""
        counts = console.plural(look.n_inferences, "inference"), console.plural(look.n_episodes, "episode")
        yield f"{'  '.join(counts)}{text}"
    if look.first_at is not None and look.last_at is not None:
        yield f"from      {_time(look.first_at)} to {_time(look.last_at)}"
    feedback = ", ".join(f"{kind} {console.count(n)}" for kind, n in look.n_feedback.items())
    yield f"feedback  {feedback or 'none'}"


def _functions(look: DatabaseLook) -> None:
    if not look.functions:
        return
    numbers = [console.Cell(heading, is_number=True) for heading in ("inferences", "episodes")]
    rows = []
    for function in look.functions:
        rows.append((function.name, function.function_type, *_counted(function)))
        rows += [(f"  {variant.name}", "", *_counted(variant)) for variant in function.variants]
    console.result()
    console.table(
        [
            console.Cell("function, variant"),
            console.Cell("type"),
            *numbers,
            console.Cell("first"),
            console.Cell("last"),
        ],
        rows,
    )
    _more(look.n_functions, len(look.functions), "function")


def _counted(one: FunctionLook | VariantLook) -> tuple[str, str, str, str]:
    return (
        console.count(one.n_inferences),
        console.count(one.n_episodes),
        "-" if one.first_at is None else f"{one.first_at:%Y-%m-%d}",
        "-" if one.last_at is None else f"{one.last_at:%Y-%m-%d}",
    )


def _metrics(look: DatabaseLook) -> None:
    if not look.metrics:
        return
    headings = ("measured", "min", "10%", "25%", "median", "75%", "90%", "max")
    console.result()
    console.table(
        [
            console.Cell("metric"),
            console.Cell("type"),
            console.Cell("of"),
            console.Cell("best"),
            *(console.Cell(heading, is_number=True) for heading in headings),
        ],
        [
            (
                metric.name,
                metric.kind,
                _level(metric),
                metric.optimize or "?",
                console.count(metric.n_targets),
                *_quantiles(metric),
            )
            for metric in look.metrics
        ],
    )
    _more(look.n_metrics, len(look.metrics), "metric")


def _level(metric: MetricLook) -> str:
    if metric.level is not None:
        return metric.level
    return "both" if metric.n_on_episodes and metric.n_on_inferences else "?"


def _quantiles(metric: MetricLook) -> list[str]:
    if metric.quantiles is None:
        return ["-"] * 7
    return [f"{value:.4g}" for value in metric.quantiles.model_dump().values()]


def _thresholds(look: DatabaseLook) -> None:
    rows = []
    for metric in look.metrics:
        if metric.n_episodes_kept is None:
            continue
        name = metric.name
        bound = "--max" if metric.is_minimized else "--min"
        rows.append((name, "", console.count(metric.n_episodes_kept)))
        rows += [
            ("", f"{bound} {threshold.value:g}", console.count(threshold.n_episodes))
            for threshold in metric.thresholds
        ]
    if rows:
        console.result()
        cells = [
            console.Cell("export --metric"),
            console.Cell("bound"),
            console.Cell("episodes kept", is_number=True),
        ]
        console.table(cells, rows)


def _tags(look: DatabaseLook) -> None:
    if not look.tags:
        return
    console.result()
    numbers = [console.Cell(heading, is_number=True) for heading in ("inferences", "values")]
    console.table(
        [console.Cell("tag"), *numbers, console.Cell("most frequent")],
        [
            (
                tag.key,
                console.count(tag.n_inferences),
                console.count(tag.n_values),
                ", ".join(f"{_short(value)} ({console.count(n)})" for value, n in tag.values.items()),
            )
            for tag in look.tags
        ],
    )
    _more(look.n_tags, len(look.tags), "tag")


def _short(value: str) -> str:
    return value if len(value) <= _LONGEST_VALUE else f"{value[: _LONGEST_VALUE - 1]}…"


def _more(n: int | None, n_listed: int, noun: str) -> None:
    if n is not None and n > n_listed:
        console.result(f"… and {console.plural(n - n_listed, noun)} more")


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
