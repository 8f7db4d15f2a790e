"""Print text from elsewhere safely: no control codes; wrapped and coloured only on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

import click

from trajkit._core.output import console
from trajkit._core.outside import visible

if TYPE_CHECKING:
    from rich.console import Console

_INDENT = 2
"""Columns by which a text below its name is indented."""


class Page:
    """Writes headings and texts: on a terminal coloured and wrapped at its width, else plain.

    Args:
        file: Where it writes.
    """

    def __init__(self, file: TextIO) -> None:
        from rich.console import Console

        self._file = file
        self._console: Console = Console(
            file=file,
            force_terminal=None if file is sys.stdout else False,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._has_text = False
        self.n_lines = 0
        """Lines that were printed on a terminal."""

    @property
    def n_lines_of_screen(self) -> int | None:
        """Number of lines that are visible at once; None if this is not a terminal."""
        return self._console.height if self._console.is_terminal else None

    def heading(self, text: str) -> None:
        """Write a heading, with an empty line before it unless it is the first."""
        if self._has_text:
            click.echo(file=self._file)
            self.n_lines += 1
        self._put(visible(text), "bold")

    def field(self, name: str, text: str, *, style: str = "") -> None:
        """Write a name with its text; a text of several lines goes below it, indented."""
        text, name = visible(text, is_line=False), visible(name)
        fits = not self._console.is_terminal or console.width_of(f"{name}: {text}") <= self._console.width
        if "\n" not in text and fits:
            self._put(f"{name}: {text}", style)
            return
        self._put(f"{name}:", style)
        self._put(text, style, indent=_INDENT)

    def _put(self, text: str, style: str, *, indent: int = 0) -> None:
        self._has_text = True
        if not self._console.is_terminal:  # unchanged: the next program may search for a line
            margin = " " * indent
            click.echo("\n".join(f"{margin}{line}" for line in text.split("\n")), file=self._file)
            return
        for line in text.split("\n"):
            printed = self._wrapped(line, style, indent)
            self.n_lines += printed.count("\n")
            # click writes it, so that a closed pipe (`| head`) ends the command as everywhere
            click.echo(printed, file=self._file, nl=False, color=True)

    def _wrapped(self, line: str, style: str, indent: int) -> str:
        """Write a line at the width of the terminal; wrapped parts keep its indent."""
        from rich.padding import Padding
        from rich.text import Text

        own = len(line) - len(line.lstrip(" "))
        margin = min(indent + own, self._console.width // 2)
        with self._console.capture() as captured:
            text = Text(line[own:], style=style)
            self._console.print(Padding(text, (0, 0, 0, margin), expand=False))
        return captured.get()
