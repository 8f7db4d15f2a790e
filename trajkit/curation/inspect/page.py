"""Show what `trajkit inspect` found as a page in one HTML file, without scripts, fonts or other files."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from trajkit.curation.inspect.model import Inspection
from trajkit.curation.inspect.text import about, example_rows, sections, title_of_examples
from trajkit.curation.statistics.html_page import document, html_table

_WRAPPED = "white-space:normal;overflow-wrap:anywhere;text-align:left"


def page(found: Inspection) -> str:
    """Return the page as HTML text."""
    return document(f"{found.place}: a first look", "".join(_parts(found)))


def _parts(found: Inspection) -> Iterator[str]:
    yield f"<h1>{escape(found.place)}</h1>"
    yield "".join(f"<p>{escape(line)}</p>" for line in about(found))
    for section in sections(found):
        yield f"<h2>{escape(section.title)}</h2>"
        if section.rows:
            rows = [tuple(cell.strip() for cell in row) for row in section.rows]
            yield f'<div class="wraps">{html_table(section.headings, rows)}</div>'
        yield "".join(f"<p>{escape(line)}</p>" for line in section.lines)
    yield f"<h2>{escape(title_of_examples(found))}</h2>"
    for example in found.examples:
        yield f"<h3>{escape(example.which)}: {escape(example.episode_id)}</h3>"
        for name, text in example_rows(example):
            yield f"<p><b>{escape(name)}</b> {escape(text)}</p>"
    yield "<h2>Next</h2>"
    yield "".join(f'<p><code style="{_WRAPPED}">{escape(one)}</code></p>' for one in found.commands)
