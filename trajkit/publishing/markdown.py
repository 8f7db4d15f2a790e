"""Markdown of which no value can break a line, a cell or a block."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml


def front_matter(fields: Mapping[str, Any]) -> str:
    """The metadata at the top of a card; what is None is left out."""
    said = {name: value for name, value in fields.items() if value is not None}
    return f"---\n{yaml.safe_dump(said, sort_keys=False, allow_unicode=True, width=1000)}---\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table of Markdown."""
    yield f"| {' | '.join(plain(heading) for heading in headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(plain(cell, keeps_code=True) for cell in row)} |"


def plain(text: str, *, keeps_code: bool = False) -> str:
    """A text that stays in its line and its cell, and is no markup of its own."""
    shown = "".join(c if c.isprintable() else " " for c in text).replace("|", "\\|").replace("<", "&lt;")
    return shown if keeps_code else shown.replace("`", "'")


def code(language: str, *lines: str) -> Iterator[str]:
    """A block of code, which no line of it can end."""
    yield f"```{language}"
    yield from (line.replace("```", "'''") for line in lines)
    yield "```"


def tex(text: str) -> str:
    """A text in a field of BibTeX."""
    return re.sub(r"([_&%#{}$])", r"\\\1", plain(text))
