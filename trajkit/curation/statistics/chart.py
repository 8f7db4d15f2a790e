"""Charts as SVG text: intervals, bars, histograms, curves. Colours and fonts come from the page's CSS."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH = 760
"""Width of a chart, in SVG units."""
_LABELS = 210
_NUMBERS = 150
_ROW = 26
_LONGEST = 30
_TICKS = 5
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, WIDTH - 16.0, 30.0, 270.0
_MOST_POINTS = 300
_MOST_DOTS = 60


class Point(NamedTuple):
    """A value with its bounds, for a row of `intervals`."""

    label: str
    value: float
    low: float | None
    """None draws only the value."""
    high: float | None
    said: str
    """The text beside the row."""


class Bar(NamedTuple):
    """A row of `bars`."""

    label: str
    value: float
    said: str
    """The text behind the bar."""


def intervals(points: Sequence[Point], *, title: str, is_share: bool = False) -> str:
    """Draw a row per point: a dot at the value, a line from bound to bound.

    Args:
        points: From top to bottom.
        title: Description of the chart, for screen readers.
        is_share: Whether values are shares and the axis runs from 0 to 100 %; else the axis fits the points.
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
    """Draw horizontal bars from 0, the longest over the whole width.

    Args:
        rows: From top to bottom; values are 0 or more.
        title: Description of the chart, for screen readers.
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
    """Draw a histogram.

    Args:
        edges: Ascending; one more than there are bars.
        heights: Number of values in each bar.
        title: Description of the chart, for screen readers.
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
    """Return about five round numbers from `low` to `high`."""
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
    """Write a number with few digits: 0.25, 1,200, 3.4M."""
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
    """Return an SVG chart around the drawn elements."""
    # a chart scaled to a phone's width has illegible letters: it scrolls instead
    return (
        f'<div class="scroll"><svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}" xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>{inner}</svg></div>'
    )


class Place(NamedTuple):
    """A value at a step."""

    step: float
    value: float


class Curve(NamedTuple):
    """A line of a chart."""

    name: str
    places: Sequence[Place]
    """By rising step."""
    style: str
    """CSS class: `first` or `second`."""


def curves(
    lines: Sequence[Curve],
    *,
    title: str,
    marked: Place | None = None,
    said: str = "",
    across: str = "steps of the optimizer",
) -> str:
    """Draw lines over steps; a line with very many values is averaged over neighbours.

    Args:
        lines: Lines with at least one place each.
        title: Description of the chart, for screen readers.
        marked: A place to draw a ring around.
        said: Tooltip of the ring.
        across: Label of the step axis.
    """
    every = [place for line in lines for place in line.places]
    low, high = min(place.value for place in every), max(place.value for place in every)
    last = max(place.step for place in every)
    first = min(0.0, *(place.step for place in every))
    ticks = nice_ticks(low, high)
    low, high = min([low, *ticks]), max([high, *ticks])

    def x_of(step: float) -> float:
        return _LEFT + (step - first) / ((last - first) or 1.0) * (_RIGHT - _LEFT)

    def up(value: float) -> float:
        return _BOTTOM - (value - low) / ((high - low) or 1.0) * (_BOTTOM - _TOP)

    drawn = [
        f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{up(y):.1f}" y2="{up(y):.1f}"/>'
        f'<text class="tick" x="{_LEFT - 6}" y="{up(y) + 4:.1f}" text-anchor="end">{brief(y)}</text>'
        for y in ticks
    ]
    drawn += [
        f'<text class="tick" x="{x_of(x):.1f}" y="{_BOTTOM + 18}" text-anchor="middle">{brief(x)}</text>'
        for x in nice_ticks(first, last)
    ]
    drawn.append(
        f'<text class="tick" x="{_RIGHT}" y="{_BOTTOM + 36}" text-anchor="end">{escape(across)}</text>'
    )
    for number, line in enumerate(lines):
        places = _means(line.places)
        points = " ".join(f"{x_of(step):.1f},{up(value):.1f}" for step, value in places)
        x = _LEFT + 140 * number
        drawn.append(f'<polyline class="curve {line.style}" points="{points}"/>')
        if len(places) <= _MOST_DOTS:
            drawn += [
                f'<circle class="{line.style}" cx="{x_of(step):.1f}" cy="{up(value):.1f}" r="3">'
                f"<title>{escape(line.name)} at step {brief(step)}: {value:.4g}</title></circle>"
                for step, value in places
            ]
        drawn.append(
            f'<line class="curve {line.style}" x1="{x}" x2="{x + 18}" y1="10" y2="10"/>'
            f'<text class="label" x="{x + 24}" y="14">{escape(line.name)}</text>'
        )
    if marked is not None:
        drawn.append(
            f'<circle class="ring" cx="{x_of(marked.step):.1f}" cy="{up(marked.value):.1f}" r="7">'
            f"<title>{escape(said)}</title></circle>"
        )
    return svg(title, _BOTTOM + 44, "".join(drawn))


def _means(places: Sequence[Place]) -> list[Place]:
    """Average neighbours until at most as many places are left as a screen can show."""
    size = -(-len(places) // _MOST_POINTS)
    groups = [places[start : start + size] for start in range(0, len(places), size)]
    return [
        Place(sum(step for step, _ in group) / len(group), sum(value for _, value in group) / len(group))
        for group in groups
    ]
