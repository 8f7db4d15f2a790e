"""Draw the charts of a report with Altair: axes of means begin at zero, and every mean has its interval.

Their marks are bars from zero, intervals, and per task a row with a line per variant.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trajkit._core.lazy import need
from trajkit._core.outside import visible
from trajkit.evaluation.estimates.compare import Comparison
from trajkit.evaluation.estimates.estimate import SHARES
from trajkit.evaluation.reports.model import ReportData
from trajkit.evaluation.reports.text import (
    ALL,
    Table,
    difference_table,
    heading,
    interval,
    learning_table,
    measure_table,
    number,
    outcome_table,
    per_success_table,
)

_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8a8a", "#b59f00")
"""Colors that color-blind readers can distinguish: M. Okabe & K. Ito, "Color universal design" (2008)."""

_ROW = 30
"""Height of a row, in pixels."""
_BY_TASK_ROW = 16
"""Height of a variant within the row of a task, in pixels."""
_MOST_ROWS = 40
"""Maximum rows per chart; the table under it has all rows."""

_WIDTH: Any = 620
"""Width of charts in files, in pixels; the page sets `container`."""

_LONGEST_NAME = 22
_CUTS = ((9, 12), (4, 17), (16, 5), (12, 9), (1, 20), (20, 1))
"""Numbers of characters to keep at the start and at the end of a long name."""
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
            _row_of(group.name, found.value, found.low, found.high, found.standard_error, measure)
            for group in report.groups
            if (found := group.estimate(measure)) is not None
        ]
        if measure in _RARE and all(row["value"] == 0 for row in rows):
            continue  # this never happened, which the table of outcomes shows
        table = measure_table(report.groups, measure)
        shown = said + _rest(len(rows), _MOST_ROWS)
        yield Drawn(_file(measure), title, shown, _means(rows, heading(measure), measure), table)
        if measure == "success" and len(report.tasks) > 1:
            title = "Success by task"
            of_task = [
                {
                    **_row_of(group.name, found.value, found.low, found.high, None, measure),
                    "task": _short(found.task, report),
                }
                for group in report.groups
                for found in group.estimates
                if found.metric == measure and found.task
            ]
            said += _rest(len({row["name"] for row in of_task}), len(_COLORS))
            by_task = _grouped(of_task, measure, measure, _colors(report))
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
                row = _row_of(name, each.difference, each.low, each.high, None, measure, signed=True)
                rows.append({**row, "task": _short(each.task, report)})
        said = "Candidate less baseline, over the worlds that both played."
        if is_one:
            said = f"Less {report.comparisons[0].baseline}, over the worlds that both played."
        said += _rest(len({row["name"] for row in rows}), len(_COLORS))
        yield Drawn(
            f"difference-{_file(measure)}",
            title,
            said,
            _grouped(rows, measure, title, {} if several else _colors(report), is_gain=True),
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
            row = _row_of(group.name, found.value, found.low, found.high, found.standard_error, "success")
            size = 0 if group.training is None else group.training.n_episodes
            rows.append({**row, "size": size, "way": group.decoding or ""})
    alt = need("altair", extra="report")
    title = "Success over the episodes learned"
    x = alt.X("size:Q", title="episodes in the training store", axis=alt.Axis(tickCount=_ticks(alt)))
    y = alt.Y("value:Q", title="success", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    low = alt.Y("low:Q", title="success", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    names = [row["name"] for row in rows][: len(_COLORS)]
    painted = [_colors(report)[name] for name in names]
    scale = alt.Scale(domain=names, range=painted)
    color = alt.Color("name:N", title=None, sort=names, scale=scale, legend=_names_legend(alt, names))
    shown = alt.Chart(_inline([row for row in rows if row["name"] in names])).encode(x=x)
    mean = alt.Y("mean(value):Q", title="success")
    chart = alt.layer(
        shown.mark_line(opacity=0.5, color=_PLAIN).encode(y=mean, detail="way:N"),
        shown.mark_rule(strokeWidth=2).encode(y=low, y2="high:Q", color=color, tooltip=_tooltip(alt)),
        shown.mark_point(size=80, filled=True, opacity=1).encode(y=y, color=color, tooltip=_tooltip(alt)),
    ).properties(width=_WIDTH, height=260, description=title)
    said = "Each tuned variant, and the baseline at 0; the line joins the means at each number of episodes."
    said += _rest(len(rows), len(_COLORS))
    return Drawn("learning-curve", title, said, chart, learning_table(report))


def _outcomes(report: ReportData) -> Drawn:
    alt = need("altair", extra="report")
    rows = [
        {"name": group.name, "end": end, "n": n, "share": n / group.n_episodes, "order": order}
        for group in report.groups[:_MOST_ROWS]
        for order, end in enumerate(_OUTCOME_COLORS)
        if (n := group.outcomes.get(end, 0))
    ]
    shown = [end for end in _OUTCOME_COLORS if any(row["end"] == end for row in rows)]
    title = "How episodes ended"
    chart = (
        alt.Chart(_inline(rows))
        .mark_bar(height=_ROW // 2)
        .encode(
            y=_names_axis(alt, rows),
            x=alt.X(
                "share:Q",
                title="share of episodes",
                axis=alt.Axis(format="%", tickCount=_ticks(alt)),
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
        .properties(width=_WIDTH, height=_ROW * len(report.groups[:_MOST_ROWS]), description=title)
    )
    said = "Truncated: cut off by the step limit. Errors do not count for or against the variant."
    return Drawn("ends", title, said, chart, outcome_table(report.groups))


def _per_success(report: ReportData) -> Iterator[Drawn]:
    for of, title in (("tokens", "Tokens per success"), ("cost_usd", "Cost per success (USD)")):
        found = [(group, each) for group in report.groups for each in group.per_success if each.of == of]
        rows = [
            _row_of(group.name, each.value, each.low, each.high, None, of)
            for group, each in found
            if each.value is not None
        ]
        if any(row["value"] for row in rows):
            said = "All spending, failures included, per success; no bar where nothing succeeded."
            table = per_success_table([group for group, _ in found])
            mine = Table(
                table.headings, [row for row in table.rows if (row[1] == "tokens") == (of == "tokens")], 2
            )
            yield Drawn(f"{_file(of)}-per-success", title, said, _means(rows, title, of), mine)


def _colors(report: ReportData) -> dict[str, str]:
    """Give each group its own color, the same in every chart."""
    return {group.name: _COLORS[place % len(_COLORS)] for place, group in enumerate(report.groups)}


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


def _means(rows: Sequence[Mapping[str, Any]], title: str, measure: str) -> Any:
    """Draw a row per group: a bar from zero, a thick line of ± one standard error, a thin interval line."""
    alt = need("altair", extra="report")
    shown = rows[:_MOST_ROWS]
    y = _names_axis(alt, shown)

    def base(field: str) -> Any:
        return alt.Chart(_inline(_known(shown, field))).encode(y=y, tooltip=_tooltip(alt))

    x = _across(alt, measure, title)
    layers = [base("value").mark_bar(height=12, opacity=0.35, color=_COLORS[0]).encode(x=x)]
    if _known(shown, "low"):
        layers += [
            base("low").mark_rule(strokeWidth=1.5).encode(x="low:Q", x2="high:Q"),
            base("low").mark_tick(thickness=1.5, size=10).encode(x="low:Q"),
            base("low").mark_tick(thickness=1.5, size=10).encode(x="high:Q"),
        ]
    if _known(shown, "below"):
        thick = base("below").mark_rule(strokeWidth=5, color=_COLORS[0])
        layers.append(thick.encode(x="below:Q", x2="above:Q"))
    layers.append(base("value").mark_point(size=45, filled=True, opacity=1, color=_COLORS[0]).encode(x=x))
    return alt.layer(*layers).properties(width=_WIDTH, height=_ROW * len(shown), description=title)


def _grouped(
    rows: Sequence[Mapping[str, Any]],
    measure: str,
    title: str,
    colors: Mapping[str, str],
    *,
    is_gain: bool = False,
) -> Any:
    """Draw a row per task, in it a line per group: its interval, with a dot at the value."""
    alt = need("altair", extra="report")
    names = list(dict.fromkeys(row["name"] for row in rows))[: len(_COLORS)]
    tasks = list(dict.fromkeys(row["task"] for row in rows))[:_MOST_ROWS]
    shown = [row for row in rows if row["name"] in names and row["task"] in tasks]
    painted = [colors.get(name, _COLORS[place]) for place, name in enumerate(names)]
    encoding = {
        "y": alt.Y("task:N", title=None, sort=tasks, scale=alt.Scale(paddingInner=0.25, paddingOuter=0.1)),
        "yOffset": alt.YOffset("name:N", sort=names),
        "color": alt.Color(
            "name:N",
            title=None,
            sort=names,
            scale=alt.Scale(domain=names, range=painted),
            legend=_names_legend(alt, names) if len(names) > 1 else None,
        ),
        "tooltip": ["task:N", *_tooltip(alt)],
    }
    dots = alt.Chart(_inline(shown)).mark_point(size=50, filled=True, opacity=1)
    layers = [dots.encode(x=_across(alt, measure, title, is_gain=is_gain), **encoding)]
    if known := _known(shown, "low"):
        lines = alt.Chart(_inline(known)).mark_rule(strokeWidth=2)
        layers.insert(0, lines.encode(x="low:Q", x2="high:Q", **encoding))
    if is_gain:
        zero = alt.Chart(_inline([{"zero": 0}])).mark_rule(strokeDash=[4, 3]).encode(x="zero:Q")
        layers.insert(0, zero)
    height = max(_ROW, _BY_TASK_ROW * (len(names) + 1)) * len(tasks)
    return alt.layer(*layers).properties(width=_WIDTH, height=height, description=title)


def _across(alt: Any, measure: str, title: str, *, is_gain: bool = False) -> Any:
    """Return the axis of a measure: it starts at zero, and ends at 100 % for a share."""
    is_share = measure in SHARES
    return alt.X(
        "value:Q",
        title=title,
        scale=alt.Scale(domain=[0, 1]) if is_share and not is_gain else alt.Scale(zero=True, nice=True),
        axis=alt.Axis(tickCount=_ticks(alt), **({"format": "+%" if is_gain else "%"} if is_share else {})),
    )


def _ticks(alt: Any) -> Any:
    """Return the number of ticks of an axis: fewer on a phone."""
    return alt.ExprRef("width < 300 ? 4 : 6")


def _row_of(
    name: str,
    value: float,
    low: float | None,
    high: float | None,
    error: float | None,
    measure: str,
    *,
    signed: bool = False,
) -> dict[str, Any]:
    """Return the data of one mean's marks: its interval, ± one standard error, and a text of both."""
    spread = None if error is None else (value - error, value + error)
    said = number(value, measure, signed=signed)
    return {
        "name": name,
        "value": value,
        "low": low,
        "high": high if high is not None or low is None else value,
        "below": spread and spread[0],
        "above": spread and spread[1],
        "said": f"{said} {interval(low, high, measure, signed=signed)}",
    }


def _known(rows: Sequence[Mapping[str, Any]], field: str) -> list[Mapping[str, Any]]:
    """Keep the rows that have a field: Vega warns about axes without values."""
    return [row for row in rows if row[field] is not None]


def _names_axis(alt: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return an axis with a row for each name, in their order."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    return alt.Y("name:N", title=None, sort=names, axis=alt.Axis(labelExpr=_shown(names)))


def _names_legend(alt: Any, names: Sequence[str]) -> Any:
    """Return a legend above the chart: two names in a row, one on a phone."""
    columns = alt.ExprRef("width < 400 ? 1 : 2")
    return alt.Legend(orient="top", columns=columns, symbolType="circle", labelExpr=_shown(names))


def _shown(names: Sequence[str]) -> str:
    """Return a Vega expression for the label of each name."""
    shown = _short_names(names)  # two lists instead of an object: a property named `__proto__` is special
    return f"{json.dumps([*shown.values()])}[indexof({json.dumps([*shown])}, datum.label)]"


def _short_names(names: Sequence[str]) -> dict[str, str]:
    """Shorten long names in their middle where they stay different, so that they fit beside a chart."""
    for begin, end in _CUTS:
        found = {
            name: name if len(name) <= _LONGEST_NAME else f"{name[:begin]}…{name[-end:]}" for name in names
        }
        if len(set(found.values())) == len(found):
            return found
    return {name: name for name in names}


def _tooltip(alt: Any) -> list[Any]:
    """Return the tooltip of a mark."""
    return [alt.Tooltip("name:N", title="variant"), alt.Tooltip("said:N", title="mean [interval]")]


def _inline(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Embed rows in the chart."""
    return need("altair", extra="report").Data(values=[dict(row) for row in rows])
