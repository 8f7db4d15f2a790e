"""Marks of a report's charts: bars from zero, intervals, and per task a row with a line per variant."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trajkit._core.lazy import need
from trajkit.evaluation.estimates.estimate import SHARES
from trajkit.evaluation.reports.text import interval, number

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8a8a", "#b59f00")
"""Colors that color-blind readers can distinguish: M. Okabe & K. Ito, "Color universal design" (2008)."""

ROW = 30
"""Height of a row, in pixels."""
BY_TASK_ROW = 16
"""Height of a variant within the row of a task, in pixels."""
MOST_ROWS = 40
"""Most rows of a chart; the table under it has all rows."""

WIDTH: Any = 620
"""Width of charts in files, in pixels; the page sets `container`."""

_LONGEST_NAME = 22
_CUTS = ((9, 12), (4, 17), (16, 5), (12, 9), (1, 20), (20, 1))
"""Numbers of characters to keep at the start and at the end of a long name."""


def means(rows: Sequence[Mapping[str, Any]], title: str, measure: str) -> Any:
    """Draw a row per group: a bar from zero, a thick line of ± one standard error, a thin interval line."""
    alt = need("altair", extra="report")
    shown = rows[:MOST_ROWS]
    y = names_axis(alt, shown)

    def base(field: str) -> Any:
        return alt.Chart(inline(_known(shown, field))).encode(y=y, tooltip=tooltip(alt))

    x = across(alt, measure, title)
    layers = [base("value").mark_bar(height=12, opacity=0.35, color=COLORS[0]).encode(x=x)]
    if _known(shown, "low"):
        layers += [
            base("low").mark_rule(strokeWidth=1.5).encode(x="low:Q", x2="high:Q"),
            base("low").mark_tick(thickness=1.5, size=10).encode(x="low:Q"),
            base("low").mark_tick(thickness=1.5, size=10).encode(x="high:Q"),
        ]
    if _known(shown, "below"):
        thick = base("below").mark_rule(strokeWidth=5, color=COLORS[0])
        layers.append(thick.encode(x="below:Q", x2="above:Q"))
    layers.append(base("value").mark_point(size=45, filled=True, opacity=1, color=COLORS[0]).encode(x=x))
    return alt.layer(*layers).properties(width=WIDTH, height=ROW * len(shown), description=title)


def grouped(
    rows: Sequence[Mapping[str, Any]],
    measure: str,
    title: str,
    colors: Mapping[str, str],
    *,
    is_gain: bool = False,
) -> Any:
    """Draw a row per task, in it a line per group: its interval, with a dot at the value."""
    alt = need("altair", extra="report")
    names = list(dict.fromkeys(row["name"] for row in rows))[: len(COLORS)]
    tasks = list(dict.fromkeys(row["task"] for row in rows))[:MOST_ROWS]
    shown = [row for row in rows if row["name"] in names and row["task"] in tasks]
    painted = [colors.get(name, COLORS[place]) for place, name in enumerate(names)]
    encoding = {
        "y": alt.Y("task:N", title=None, sort=tasks, scale=alt.Scale(paddingInner=0.25, paddingOuter=0.1)),
        "yOffset": alt.YOffset("name:N", sort=names),
        "color": alt.Color(
            "name:N",
            title=None,
            sort=names,
            scale=alt.Scale(domain=names, range=painted),
            legend=names_legend(alt, names) if len(names) > 1 else None,
        ),
        "tooltip": ["task:N", *tooltip(alt)],
    }
    dots = alt.Chart(inline(shown)).mark_point(size=50, filled=True, opacity=1)
    layers = [dots.encode(x=across(alt, measure, title, is_gain=is_gain), **encoding)]
    if known := _known(shown, "low"):
        lines = alt.Chart(inline(known)).mark_rule(strokeWidth=2)
        layers.insert(0, lines.encode(x="low:Q", x2="high:Q", **encoding))
    if is_gain:
        zero = alt.Chart(inline([{"zero": 0}])).mark_rule(strokeDash=[4, 3]).encode(x="zero:Q")
        layers.insert(0, zero)
    height = max(ROW, BY_TASK_ROW * (len(names) + 1)) * len(tasks)
    return alt.layer(*layers).properties(width=WIDTH, height=height, description=title)


def across(alt: Any, measure: str, title: str, *, is_gain: bool = False) -> Any:
    """Return the axis of a measure: it starts at zero, and ends at 100 % for a share."""
    is_share = measure in SHARES
    return alt.X(
        "value:Q",
        title=title,
        scale=alt.Scale(domain=[0, 1]) if is_share and not is_gain else alt.Scale(zero=True, nice=True),
        axis=alt.Axis(tickCount=ticks(alt), **({"format": "+%" if is_gain else "%"} if is_share else {})),
    )


def ticks(alt: Any) -> Any:
    """Return the number of ticks of an axis: fewer on a phone."""
    return alt.ExprRef("width < 300 ? 4 : 6")


def row_of(
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


def names_axis(alt: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return an axis with a row for each name, in their order."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    return alt.Y("name:N", title=None, sort=names, axis=alt.Axis(labelExpr=_shown(names)))


def names_legend(alt: Any, names: Sequence[str]) -> Any:
    """Return a legend above the chart: two names in a row, one on a phone."""
    columns = alt.ExprRef("width < 400 ? 1 : 2")
    return alt.Legend(orient="top", columns=columns, symbolType="circle", labelExpr=_shown(names))


def _shown(names: Sequence[str]) -> str:
    """Return a Vega expression for the label of each name."""
    shown = short_names(names)  # two lists instead of an object: a property named `__proto__` is special
    return f"{json.dumps([*shown.values()])}[indexof({json.dumps([*shown])}, datum.label)]"


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Shorten long names in their middle where they stay different, so that they fit beside a chart."""
    for begin, end in _CUTS:
        found = {
            name: name if len(name) <= _LONGEST_NAME else f"{name[:begin]}…{name[-end:]}" for name in names
        }
        if len(set(found.values())) == len(found):
            return found
    return {name: name for name in names}


def tooltip(alt: Any) -> list[Any]:
    """Return the tooltip of a mark."""
    return [alt.Tooltip("name:N", title="variant"), alt.Tooltip("said:N", title="mean [interval]")]


def inline(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Embed rows in the chart."""
    return need("altair", extra="report").Data(values=[dict(row) for row in rows])
