"""Values over steps as SVG text: lines that share their axes. Colours and fonts come from the page around."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from trajkit.curation.chart import WIDTH, brief, nice_ticks, svg

_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, WIDTH - 16.0, 30.0, 270.0
_MOST_POINTS = 300
_MOST_DOTS = 60


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
    """Its class in the page: `first` or `second`."""


def curves(
    lines: Sequence[Curve],
    *,
    title: str,
    marked: Place | None = None,
    said: str = "",
    across: str = "steps of the optimizer",
) -> str:
    """Lines over steps; of very many values the means of neighbours are drawn.

    Args:
        lines: Those with at least one place.
        title: What is shown, for those who cannot see it.
        marked: A place with a ring around it.
        said: What is special about that.
        across: What the steps are of.
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
    """At most so many places as a screen can show: each the mean of its neighbours."""
    size = -(-len(places) // _MOST_POINTS)
    groups = [places[start : start + size] for start in range(0, len(places), size)]
    return [
        Place(sum(step for step, _ in group) / len(group), sum(value for _, value in group) / len(group))
        for group in groups
    ]
