"""Frame a page of charts in one HTML file, without scripts, fonts or other files."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #dfe3e8; --paper: #ffffff;
  --accent: #2563a8; --second: #b4530a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --soft: #9aa5b3; --line: #333b46; --paper: #14181d; --accent: #6ea8e6;
    --second: #f0a35e; } }
body { margin: 0 auto; max-width: 820px; padding: 2rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .25rem; border-top: 1px solid var(--line); padding-top: 1.25rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
p { margin: .25rem 0 .75rem; color: var(--soft); overflow-wrap: anywhere; }
svg { display: block; width: 100%; min-width: 560px; height: auto; overflow: visible;
  font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .tick { fill: var(--soft); font-size: 11px; }
svg .number { font-variant-numeric: tabular-nums; } svg .grid { stroke: var(--line); }
svg .range { stroke: var(--accent); stroke-width: 2; } svg .dot, svg .bar { fill: var(--accent); }
svg .curve { fill: none; stroke-width: 1.75; stroke-linejoin: round; }
svg .curve.first { stroke: var(--accent); } svg .curve.second { stroke: var(--second); }
svg circle.first { fill: var(--accent); } svg circle.second { fill: var(--second); }
svg .ring { fill: none; stroke: var(--ink); stroke-width: 1.5; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; min-width: 100%; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap;
  font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child { text-align: left; }
.wraps td { white-space: normal; overflow-wrap: anywhere; }
.wraps td:first-child { min-width: 9em; } .wraps td:last-child { min-width: 6em; }
details { margin: .5rem 0 1rem; } summary { cursor: pointer; color: var(--soft); }
"""


def document(title: str, body: str) -> str:
    """Return a whole page.

    Args:
        title: Title of the window.
        body: HTML.
    """
    html = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{body}</body></html>\n"
    )
    # names are untrusted: no control codes, and no marks that reverse the direction of writing
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in html)


def html_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table that scrolls if it is too wide; a header of empty headings is left out."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    header = f"<thead><tr>{head}</tr></thead>" if any(headings) else ""
    return f'<div class="scroll"><table>{header}<tbody>{body}</tbody></table></div>'
