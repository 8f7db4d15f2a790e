"""Text from elsewhere made fit to be read: no control codes; wrapped and coloured only on a terminal."""

from __future__ import annotations

import sys
import unicodedata
from typing import TYPE_CHECKING

import click

from trajkit.cli import output

if TYPE_CHECKING:
    from rich.console import Console

_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, *, is_line: bool = True) -> str:
    """The text with control characters spelled out, so that data cannot steer a terminal.

    Args:
        text: What to show.
        is_line: Spell out line breaks and tabs as well.
    """
    if text.isprintable():
        return text
    return "".join(_shown(character, is_line) for character in text)


def _shown(character: str, is_line: bool) -> str:
    if character in "\n\t" and not is_line:
        return character
    if character in _ESCAPES:
        return _ESCAPES[character]
    # Cc: control codes; Cf: invisible marks, among them those that turn the direction of writing
    if unicodedata.category(character) in ("Cc", "Cf") and character != "\u200d":
        return f"\\u{ord(character):04x}"
    return character


class Page:
    """Prints headings and texts on stdout; on a terminal in colour and wrapped at its width, else plain."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console: Console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        self._has_text = False

    def heading(self, text: str) -> None:
        """A line that starts something, with an empty one before it unless it is the first."""
        if self._has_text:
            output.result()
        self._put(visible(text), "bold")

    def field(self, name: str, text: str, *, style: str = "") -> None:
        """A name with its text; a text of several lines goes below it, set in."""
        text = visible(text, is_line=False)
        if "\n" not in text:
            self._put(f"{name}: {text}", style)
            return
        self._put(f"{name}:", style)
        self._put("\n".join(f"  {line}" for line in text.splitlines()), style)

    def _put(self, text: str, style: str) -> None:
        from rich.text import Text

        self._has_text = True
        with self._console.capture() as captured:
            self._console.print(Text(text, style=style), soft_wrap=not self._console.is_terminal)
        # click writes it, so that a reader that goes away (`| head`) ends the command like any other
        click.echo(captured.get(), nl=False, color=self._console.is_terminal)
