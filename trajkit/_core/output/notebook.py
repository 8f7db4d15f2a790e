"""Make pieces of HTML for a notebook, whose background may be light or dark.

Colours follow the notebook's text colour, and everything is readable if a viewer drops the style. All text is
escaped, and no mark in it changes the direction of later text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_STYLE = """
.trajkit{font:13px/1.5 system-ui,sans-serif;color:inherit;max-width:70em;--line:rgba(128,128,128,.35)}
.trajkit p{margin:.2em 0 .6em}.trajkit .soft{opacity:.7}
.trajkit .title{font-size:1.1em;font-weight:600}
.trajkit .wide{overflow-x:auto;margin:.4em 0}
.trajkit table{font:inherit;border-collapse:collapse;font-variant-numeric:tabular-nums;margin:0;
background:none}
.trajkit th,.trajkit td{padding:.2em .8em;border:0;border-bottom:1px solid var(--line);text-align:left;
vertical-align:top;background:none;color:inherit;white-space:nowrap}
.trajkit th{font-weight:600;opacity:.75}
.trajkit th.number,.trajkit td.number{text-align:right}
.trajkit tr{background:none!important}
.trajkit details{margin:.2em 0}.trajkit summary{cursor:pointer;opacity:.75}
.trajkit pre{margin:.15em 0;padding:.4em .7em;white-space:pre-wrap;overflow-wrap:anywhere;
font:12px/1.45 ui-monospace,monospace;color:inherit;background:rgba(128,128,128,.12);border-radius:4px;
unicode-bidi:isolate}
.trajkit section{margin:.5em 0;padding:.1em 0 .1em .8em;border-left:3px solid var(--line)}
.trajkit section.answer{border-left-color:#2a7de1}
.trajkit section.bad{border-left-color:#d9480f}
.trajkit .who{font-weight:600;margin-right:.8em}
.trajkit img{max-width:100%;border-radius:4px}
"""

_LONGEST = 4_000
"""Shown characters of a text; a notebook stores all that it shows."""
_LONGEST_NAME = 200
"""The same for a name, an action, or a cell of a table."""


def framed(parts: Iterable[str]) -> str:
    """A piece of a notebook."""
    return f'<div class="trajkit"><style>{_STYLE}</style>{"".join(parts)}</div>'


def title(text: str, more: str = "") -> str:
    """A title, and a short remark."""
    soft = f' <span class="soft">{name(more)}</span>' if more else ""
    return f'<p><span class="title">{name(text)}</span>{soft}</p>'


def line(text: str) -> str:
    """A line of text."""
    return f'<p class="soft">{safe(text)}</p>'


def facts(texts: Iterable[str]) -> str:
    """A line of several texts."""
    return f'<p class="soft">{"  ·  ".join(name(text) for text in texts)}</p>'


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, n_text: int = 1) -> str:
    """A table that scrolls if it is too wide.

    Args:
        headings: One for each column.
        rows: Texts.
        n_text: Number of text columns; the others are numbers, and right-aligned.
    """
    head = _cells("th", headings, n_text)
    body = "".join(f"<tr>{_cells('td', row, n_text)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cells(tag: str, texts: Sequence[str], n_text: int) -> str:
    numbers = ("" if place < n_text else ' class="number"' for place in range(len(texts)))
    return "".join(
        f"<{tag}{number}>{name(text)}</{tag}>" for text, number in zip(texts, numbers, strict=True)
    )


def folded(summary: str, inner: str) -> str:
    """A part that a click opens.

    Args:
        summary: Text.
        inner: HTML.
    """
    return f"<details><summary>{name(summary)}</summary>{inner}</details>"


def block(text: str) -> str:
    """A text with its line breaks; the end of a very long one is left out, and its length is given."""
    shown = text[:_LONGEST]
    rest = len(text) - len(shown)
    more = f'<p class="soft">… {rest:,} characters more</p>' if rest else ""
    return f"<pre>{safe(shown)}</pre>{more}"


def name(text: str) -> str:
    """A short text as HTML; a long one is cut."""
    return safe(text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…")


def safe(text: str) -> str:
    """Text as HTML that is only text: no tag, no control code, no mark that reverses later text."""
    return escape("".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text))
