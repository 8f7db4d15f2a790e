"""Draw the charts of a report with Altair: axes of means begin at zero, and every mean has its interval."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trajkit._core.lazy import need
from trajkit._core.outside import visible
from trajkit.evaluation.estimates.compare import Comparison
from trajkit.evaluation.reports.marks import (
    COLORS,
    MOST_ROWS,
    ROW,
    WIDTH,
    grouped,
    inline,
    means,
    names_axis,
    names_legend,
    row_of,
    ticks,
    tooltip,
)
from trajkit.evaluation.reports.model import ReportData
from trajkit.evaluation.reports.text import (
    ALL,
    Table,
    difference_table,
    heading,
    learning_table,
    measure_table,
    outcome_table,
    per_success_table,
)

_OUTCOME_COLORS = {
    "success": "#009e73",
    "truncated": "#e69f00",
    "failure": "#d55e00",
    "error": "#cc79a7",
    "unknown": "#8a8a8a",
}
_PLAIN = "#8a8a8a"
_RARE = ("invalid", "cost_usd")
_LONGEST_FILE = 60

_DESCRIPTIONS = {
    "success": "Share of episodes that reached their goal.",
    "n_steps": "Mean steps of an episode.",
    "n_output_tokens": "Mean tokens that the model generated in an episode.",
    "n_input_tokens": "Mean tokens of an episode's prompts.",
    "invalid": "Share of an episode's answers that named no action.",
    "cost_usd": "Mean cost of an episode in US dollars.",
}


_OF_OBJECTS = (
    *("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString"),
    *("valueOf", "__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__"),
)
"""Names that every JavaScript object has: Vega would read the object's own property instead of the data."""


@dataclass(frozen=True)
class Drawn:
    """A chart with its numbers."""

    name: str
    """Base name of its files."""
    title: str
    """Title above the chart."""
    said: str
    """Text under the title."""
    chart: Any
    """The `altair.LayerChart`."""
    table: Table
    """Table of its numbers and of the numbers per task."""

    @functools.cached_property
    def spec(self) -> dict[str, Any]:
        """The chart as Vega-Lite, without colors."""
        found: dict[str, Any] = self.chart.to_dict(format="vega-lite", validate=False)
        found.pop("config", None)  # Altair's own colors
        return found


def charts(report: ReportData) -> Iterator[Drawn]:
    """Draw every chart of a report, in the order of the page.

    Raises:
        MissingExtra: Altair is not installed.
    """
    report = ReportData.model_validate(_drawable(report.model_dump()))
    yield from _estimates(report)
    yield from _differences(report)
    if (drawn := _learning(report)) is not None:
        yield drawn
    yield _outcomes(report)
    yield from _per_success(report)


def _drawable(value: Any) -> Any:
    """Replace names that Vega cannot draw: control characters and names of JavaScript object properties."""
    if isinstance(value, str):
        return f"{value}\u00a0" if value in _OF_OBJECTS else visible(value)
    if isinstance(value, list | tuple):
        return [_drawable(each) for each in value]
    return {name: _drawable(each) for name, each in value.items()} if isinstance(value, dict) else value


def _estimates(report: ReportData) -> Iterator[Drawn]:
    for measure in report.measures:
        said = _DESCRIPTIONS.get(measure, "Mean of an episode.")
        title = heading(measure).capitalize()
        rows = [
            row_of(group.name, found.value, found.low, found.high, found.standard_error, measure)
            for group in report.groups
            if (found := group.estimate(measure)) is not None
        ]
        if measure in _RARE and all(row["value"] == 0 for row in rows):
            continue  # this never happened, which the table of outcomes shows
        table = measure_table(report.groups, measure)
        shown = said + _rest(len(rows), MOST_ROWS)
        yield Drawn(_file(measure), title, shown, means(rows, heading(measure), measure), table)
        if measure == "success" and len(report.tasks) > 1:
            title = "Success by task"
            of_task = [
                {
                    **row_of(group.name, found.value, found.low, found.high, None, measure),
                    "task": _short(found.task, report),
                }
                for group in report.groups
                for found in group.estimates
                if found.metric == measure and found.task
            ]
            said += _rest(len({row["name"] for row in of_task}), len(COLORS))
            by_task = grouped(of_task, measure, measure, _colors(report))
            yield Drawn("success-by-task", title, said, by_task, table)


def _differences(report: ReportData) -> Iterator[Drawn]:
    by_measure: dict[str, list[Comparison]] = {}
    for each in report.comparisons:
        by_measure.setdefault(each.metric, []).append(each)
    pairs = {(each.baseline, each.candidate) for each in report.comparisons}
    several = len(pairs) > len({candidate for _, candidate in pairs})
    is_one = len({baseline for baseline, _ in pairs}) == 1
    for measure, found in by_measure.items():
        if measure in _RARE and all(each.difference == 0 for each in found):
            continue
        title = f"Difference in {heading(measure)}"
        rows = []
        for each in found:
            if len(report.tasks) > 1 or each.task is None:
                name = f"{each.candidate} − {each.baseline}" if several else each.candidate
                row = row_of(name, each.difference, each.low, each.high, None, measure, signed=True)
                rows.append({**row, "task": _short(each.task, report)})
        said = "Candidate less baseline, over the worlds that both played."
        if is_one:
            said = f"Less {report.comparisons[0].baseline}, over the worlds that both played."
        said += _rest(len({row["name"] for row in rows}), len(COLORS))
        yield Drawn(
            f"difference-{_file(measure)}",
            title,
            said,
            grouped(rows, measure, title, {} if several else _colors(report), is_gain=True),
            difference_table(found, is_by_task=len(report.tasks) > 1),
        )


def _learning(report: ReportData) -> Drawn | None:
    """Draw success over the number of training episodes; None without two different numbers."""
    tuned = [group for group in report.groups if group.training is not None]
    if len({group.training.n_episodes for group in tuned if group.training}) < 2:
        return None
    baselines = {each.baseline for each in report.comparisons}
    rows = []
    for group in report.groups:
        found = group.estimate("success")
        if found is not None and (group.training is not None or group.name in baselines):
            row = row_of(group.name, found.value, found.low, found.high, found.standard_error, "success")
            size = 0 if group.training is None else group.training.n_episodes
            rows.append({**row, "size": size, "way": group.decoding or ""})
    alt = need("altair", extra="report")
    title = "Success over the episodes learned"
    x = alt.X("size:Q", title="episodes in the training store", axis=alt.Axis(tickCount=ticks(alt)))
    y = alt.Y("value:Q", title="success", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    low = alt.Y("low:Q", title="success", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    names = [row["name"] for row in rows][: len(COLORS)]
    painted = [_colors(report)[name] for name in names]
    scale = alt.Scale(domain=names, range=painted)
    color = alt.Color("name:N", title=None, sort=names, scale=scale, legend=names_legend(alt, names))
    shown = alt.Chart(inline([row for row in rows if row["name"] in names])).encode(x=x)
    mean = alt.Y("mean(value):Q", title="success")
    chart = alt.layer(
        shown.mark_line(opacity=0.5, color=_PLAIN).encode(y=mean, detail="way:N"),
        shown.mark_rule(strokeWidth=2).encode(y=low, y2="high:Q", color=color, tooltip=tooltip(alt)),
        shown.mark_point(size=80, filled=True, opacity=1).encode(y=y, color=color, tooltip=tooltip(alt)),
    ).properties(width=WIDTH, height=260, description=title)
    said = "Each tuned variant, and the baseline at 0; the line joins the means at each number of episodes."
    said += _rest(len(rows), len(COLORS))
    return Drawn("learning-curve", title, said, chart, learning_table(report))


def _outcomes(report: ReportData) -> Drawn:
    alt = need("altair", extra="report")
    rows = [
        {"name": group.name, "end": end, "n": n, "share": n / group.n_episodes, "order": order}
        for group in report.groups[:MOST_ROWS]
        for order, end in enumerate(_OUTCOME_COLORS)
        if (n := group.outcomes.get(end, 0))
    ]
    shown = [end for end in _OUTCOME_COLORS if any(row["end"] == end for row in rows)]
    title = "How episodes ended"
    chart = (
        alt.Chart(inline(rows))
        .mark_bar(height=ROW // 2)
        .encode(
            y=names_axis(alt, rows),
            x=alt.X(
                "share:Q",
                title="share of episodes",
                axis=alt.Axis(format="%", tickCount=ticks(alt)),
                scale=alt.Scale(domain=[0, 1]),
            ),
            color=alt.Color(
                "end:N",
                title=None,
                scale=alt.Scale(domain=shown, range=[_OUTCOME_COLORS[end] for end in shown]),
                legend=alt.Legend(orient="top"),
            ),
            order=alt.Order("order:Q"),
            tooltip=["name:N", "end:N", alt.Tooltip("n:Q", title="episodes")],
        )
        .properties(width=WIDTH, height=ROW * len(report.groups[:MOST_ROWS]), description=title)
    )
    said = "Truncated: cut off by the step limit. An error says nothing about the variant."
    return Drawn("ends", title, said, chart, outcome_table(report.groups))


def _per_success(report: ReportData) -> Iterator[Drawn]:
    for of, title in (("tokens", "Tokens per success"), ("cost_usd", "Cost per success (USD)")):
        found = [(group, each) for group in report.groups for each in group.per_success if each.of == of]
        rows = [
            row_of(group.name, each.value, each.low, each.high, None, of)
            for group, each in found
            if each.value is not None
        ]
        if any(row["value"] for row in rows):
            said = "All spending, failures included, per success; no bar where nothing succeeded."
            table = per_success_table([group for group, _ in found])
            mine = Table(
                table.headings, [row for row in table.rows if (row[1] == "tokens") == (of == "tokens")], 2
            )
            yield Drawn(f"{_file(of)}-per-success", title, said, means(rows, title, of), mine)


def _colors(report: ReportData) -> dict[str, str]:
    """Give each group its own color, the same in every chart."""
    return {group.name: COLORS[place % len(COLORS)] for place, group in enumerate(report.groups)}


def _rest(n: int, most: int) -> str:
    """Return a note about values that only the table shows."""
    return f" Here the first {most} of {n}; the table has all." if n > most else ""


def _short(task: str | None, report: ReportData) -> str:
    """Return a task without its environment where all tasks are of the same one."""
    if task is None:
        return "all tasks" if len(report.tasks) > 1 else (report.tasks[0] if report.tasks else ALL)
    is_one = len({each.partition("/")[0] for each in report.tasks}) == 1
    short: str = _drawable(task.partition("/")[2] or task if is_one else task)
    return short


def _file(measure: str) -> str:
    """Return the file name of a measure."""
    named = {"n_steps": "length", "n_output_tokens": "generated-tokens", "n_input_tokens": "input-tokens"}
    words = "".join(c if c.isalnum() else " " for c in heading(measure).lower()).split()
    return named.get(measure) or "-".join(words)[:_LONGEST_FILE] or "measure"
