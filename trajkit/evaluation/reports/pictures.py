"""Render charts as files and as pieces of a page, with settings for paper, light and dark backgrounds."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator
from typing import Any

from trajkit._core.lazy import need
from trajkit.errors import DataError
from trajkit.evaluation.reports.charts import Drawn

_SCALE = 2
"""Pixels of a PNG per unit of the chart."""


def config(ink: str, soft: str, line: str, paper: str | None) -> dict[str, Any]:
    """Return the colors of a chart as Vega-Lite's config; without `paper` the background is transparent."""
    text = {"labelColor": soft, "titleColor": ink, "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": paper or "transparent",
        "font": "system-ui, sans-serif",
        "view": {"stroke": None},
        "axis": {
            **text,
            "titleFontWeight": "normal",
            "gridColor": line,
            "domainColor": line,
            "tickColor": line,
            "labelLimit": 150,
        },
        "axisY": {"labelColor": ink, "grid": False},
        "legend": {**text, "labelColor": ink, "labelLimit": 150},
        "rule": {"color": ink},
        "tick": {"color": ink},
        "text": {"color": ink},
    }


LIGHT = config("#1c2430", "#5b6675", "#dfe3e8", None)
"""Colors of the page in light mode."""
DARK = config("#e6e9ee", "#9aa5b3", "#333b46", None)
"""Colors of the page in dark mode."""
# the font of a reader may be wider than the one that labels were measured with
_PAPER = config("#1c2430", "#5b6675", "#dfe3e8", "#ffffff") | {
    "padding": {"left": 20, "top": 5, "right": 12, "bottom": 5}
}


def png(drawn: Drawn) -> bytes:
    """Return the chart as PNG.

    Raises:
        MissingExtra: vl-convert is not installed.
        DataError: A name cannot be drawn.
    """
    convert = need("vl_convert", extra="report")
    with _drawing(drawn):
        picture: bytes = convert.vegalite_to_png(drawn.spec, scale=_SCALE, config=_PAPER)
    return picture


def svg(drawn: Drawn) -> str:
    """Return the chart as SVG.

    Raises:
        MissingExtra: vl-convert is not installed.
        DataError: A name cannot be drawn.
    """
    convert = need("vl_convert", extra="report")
    with _drawing(drawn):
        text: str = convert.vegalite_to_svg(drawn.spec, config=_PAPER)
    return text


@contextlib.contextmanager
def _drawing(drawn: Drawn) -> Iterator[None]:
    """Convert the renderer's failure to an error that names the chart."""
    try:
        yield
    except ValueError as error:
        said = " ".join(str(error).splitlines()[:2])
        raise DataError(
            f"the chart {drawn.title!r} cannot be drawn: {said}",
            hint="rename variants and tasks with unusual names; --json prints the numbers",
        ) from error


@functools.cache
def vega() -> str:
    """Return the complete source of Vega for the browser, which then loads nothing else.

    Raises:
        MissingExtra: vl-convert is not installed.
    """
    # a script must not contain its own closing tag
    text: str = need("vl_convert", extra="report").javascript_bundle()
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def script_json(value: Any) -> str:
    """Return JSON that is safe inside a script element."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c").replace("\u2028", "\\u2028")
