"""Text from elsewhere made fit to be read: no control codes; wrapped and coloured only on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

import click

from trajkit._core.output import console
from trajkit._core.outside import visible

if TYPE_CHECKING:
    from rich.console import Console

_INDENT = 2
"""Columns by which a text below its name is set in."""


class Page:
    """Writes headings and texts; on a terminal in colour and wrapped at its width, else plain.

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
        """How many lines are seen at once; None where this is no terminal."""
        return self._console.height if self._console.is_terminal else None

    def heading(self, text: str) -> None:
        """A line that starts something, with an empty one before it unless it is the first."""
        if self._has_text:
            click.echo(file=self._file)
            self.n_lines += 1
        self._put(visible(text), "bold")

    def field(self, name: str, text: str, *, style: str = "") -> None:
        """A name with its text; a text of several lines goes below it, set in."""
        text, name = visible(text, is_line=False), visible(name)
        fits = not self._console.is_terminal or console.width_of(f"{name}: {text}") <= self._console.width
        if "\n" not in text and fits:
            self._put(f"{name}: {text}", style)
            return
        self._put(f"{name}:", style)
        self._put(text, style, indent=_INDENT)

    def _put(self, text: str, style: str, *, indent: int = 0) -> None:
        self._has_text = True
        if not self._console.is_terminal:  # as it is: what comes next may look for a line
            margin = " " * indent
            click.echo("\n".join(f"{margin}{line}" for line in text.split("\n")), file=self._file)
            return
        for line in text.split("\n"):
            printed = self._wrapped(line, style, indent)
            self.n_lines += printed.count("\n")
            # click writes it, so that a reader that goes away (`| head`) ends the command like any other
            click.echo(printed, file=self._file, nl=False, color=True)

    def _wrapped(self, line: str, style: str, indent: int) -> str:
        """A line at the width of the terminal; what is wrapped stays behind its own margin."""
        from rich.padding import Padding
        from rich.text import Text

        own = len(line) - len(line.lstrip(" "))
        margin = min(indent + own, self._console.width // 2)
        with self._console.capture() as captured:
            text = Text(line[own:], style=style)
            self._console.print(Padding(text, (0, 0, 0, margin), expand=False))
        return captured.get()
