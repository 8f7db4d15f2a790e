"""Charts as SVG text: intervals, bars and histograms. Colours and fonts come from the page around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH = 760
"""Of a chart, in its own units."""
_LABELS = 210
_NUMBERS = 150
_ROW = 26
_LONGEST = 30
_TICKS = 5


class Point(NamedTuple):
    """A value with its bounds, for a row of `intervals`."""

    label: str
    value: float
    low: float | None
    """None draws the value alone."""
    high: float | None
    said: str
    """The numbers in words, beside the row."""


class Bar(NamedTuple):
    """A row of `bars`."""

    label: str
    value: float
    said: str
    """The number in words, behind the bar."""


def intervals(points: Sequence[Point], *, title: str, is_share: bool = False) -> str:
    """A row per point: a dot at the value, a line from bound to bound.

    Args:
        points: From top to bottom.
        title: What is shown, for those who cannot see it.
        is_share: The values are shares: the axis runs from 0 to 100 %; else it fits the points.
    """
    ends = [x for point in points for x in (point.value, point.low, point.high) if x is not None]
    low, high = (0.0, 1.0) if is_share else (min([0.0, *ends]), max([0.0, *ends]))
    ticks = nice_ticks(low, high)
    at = _scale(low, high)
    height = _ROW * len(points) + 30
    rows = []
    for number, point in enumerate(points):
        y = _ROW * number + _ROW / 2
        line = ""
        if point.low is not None and point.high is not None:
            left, right = at(point.low), at(point.high)
            line = f'<line class="range" x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
            line += "".join(
                f'<line class="range" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 4:.1f}" y2="{y + 4:.1f}"/>'
                for x in (left, right)
            )
        dot = f'<circle class="dot" cx="{at(point.value):.1f}" cy="{y:.1f}" r="4.5"/>'
        rows.append(
            f"<g><title>{escape(point.label)}: {escape(point.said)}</title>"
            f"{_label(point.label, y)}{line}{dot}{_number(point.said, y)}</g>"
        )
    return svg(
        title,
        height,
        _axis({x: f"{x:.0%}" if is_share else brief(x) for x in ticks}, at, height - 24) + "".join(rows),
    )


def bars(rows: Sequence[Bar], *, title: str) -> str:
    """Horizontal bars from 0, the longest over the whole width.

    Args:
        rows: From top to bottom; values are 0 or more.
        title: What is shown, for those who cannot see it.
    """
    at = _scale(0.0, max([row.value for row in rows] + [1e-300]))
    drawn = []
    for number, row in enumerate(rows):
        y = _ROW * number
        width = max(at(row.value) - _LABELS, 1.0 if row.value else 0.0)
        drawn.append(
            f"<g><title>{escape(row.label)}: {escape(row.said)}</title>{_label(row.label, y + _ROW / 2)}"
            f'<rect class="bar" x="{_LABELS}" y="{y + 4}" width="{width:.1f}" height="{_ROW - 8}" rx="2"/>'
            f"{_number(row.said, y + _ROW / 2)}</g>"
        )
    return svg(title, _ROW * len(rows) + 4, "".join(drawn))


def histogram(edges: Sequence[float], heights: Sequence[int], *, title: str) -> str:
    """Upright bars over the edges' axis.

    Args:
        edges: Rising; one more than there are bars.
        heights: How many fall into each bar.
        title: What is shown, for those who cannot see it.
    """
    left, right, top, bottom = 56.0, WIDTH - 16.0, 10.0, 150.0
    highest = max([*heights, 1])

    def across(x: float) -> float:
        return left + (x - edges[0]) / (edges[-1] - edges[0]) * (right - left)

    def up(n: float) -> float:
        return bottom - n / highest * (bottom - top)

    drawn = [
        f'<line class="grid" x1="{left}" x2="{right}" y1="{up(n):.1f}" y2="{up(n):.1f}"/>'
        f'<text class="tick" x="{left - 6}" y="{up(n) + 4:.1f}" text-anchor="end">{n:,}</text>'
        for n in (0, highest)
    ]
    for begin, end, n in zip(edges, edges[1:], heights, strict=False):
        x, width, y = across(begin) + 0.5, max(across(end) - across(begin) - 1, 0.5), up(n)
        drawn.append(
            f"<g><title>{brief(begin)} to {brief(end)}: {n:,}</title>"
            f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{bottom - y:.1f}"/></g>'
        )
    drawn += [
        f'<text class="tick" x="{across(x):.1f}" y="{bottom + 18}" text-anchor="middle">{brief(x)}</text>'
        for x in nice_ticks(edges[0], edges[-1])
    ]
    return svg(title, 176, "".join(drawn))


def nice_ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high`, about five of them."""
    if high <= low:
        return [low]
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    # a multiple of a power of ten has rounding errors that print
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def brief(number: float) -> str:
    """A number with few digits: 0.25, 1,200, 3.4M."""
    size = abs(number)
    for unit, name in ((1e9, "G"), (1e6, "M")):
        if size >= unit:
            return f"{number / unit:.3g}{name}"
    if size >= 1000 or number == int(number):
        return f"{number:,.0f}"
    return f"{number:.3g}"


def _scale(low: float, high: float) -> Callable[[float], float]:
    width = WIDTH - _LABELS - _NUMBERS
    return lambda x: _LABELS + (x - low) / ((high - low) or 1.0) * width


def _label(text: str, y: float) -> str:
    shown = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return f'<text class="label" x="{_LABELS - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(shown)}</text>'


def _number(text: str, y: float) -> str:
    return f'<text class="number" x="{WIDTH}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'


def _axis(ticks: Mapping[float, str], at: Callable[[float], float], bottom: float) -> str:
    return "".join(
        f'<line class="grid" x1="{at(x):.1f}" x2="{at(x):.1f}" y1="0" y2="{bottom}"/>'
        f'<text class="tick" x="{at(x):.1f}" y="{bottom + 16}" text-anchor="middle">{said}</text>'
        for x, said in ticks.items()
    )


def svg(title: str, height: float, inner: str) -> str:
    """A chart of what is drawn in it."""
    # on a phone a chart that fits would have letters that nobody can read: it scrolls instead
    return (
        f'<div class="scroll"><svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}" xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>{inner}</svg></div>'
    )
