"""A check and its result; all of them, and how they are shown."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from trajkit._core.output import console
from trajkit._core.output.console import Styled, styled
from trajkit._core.output.result import Result
from trajkit._core.secrets import hidden
from trajkit.schema import Model
from trajkit.schema.base import Count, JsonObject, Name, Text

_SIGNS = {"well": "✓", "note": "·", "broken": "✗"}
_WORDS = {"well": "ok ", "note": "-- ", "broken": "BAD"}
"""The same if the output cannot encode the signs."""
_COLOURS = {"well": "green", "note": "yellow", "broken": "red"}
_NARROWEST, _UNBOUND = 60, 10**6
"""Width in columns: the smallest that text is wrapped for, and the width without a terminal."""
_NAMES = 16
"""Columns of a name; a longer one takes what it needs."""


class Standing(StrEnum):
    """The state of something."""

    WELL = "well"
    """It works, as far as it was checked."""
    NOTE = "note"
    """It is missing or not finished, and nothing that is configured needs it."""
    BROKEN = "broken"
    """It exists or is configured, and does not work."""


class Check(Model):
    """One thing that was checked."""

    name: Name
    """What it is."""
    standing: Standing
    """Its state."""
    text: Text
    """What was found; holds no secret."""
    todo: Text | None = None
    """What to do about it: a command, or a sentence. None if nothing is to be done."""
    facts: JsonObject = {}
    """The same as values, for programs."""


class Section(Model):
    """Checks of one kind."""

    name: Name
    """What they are about."""
    checks: tuple[Check, ...]
    """In the order in which they are read."""


class Checkup(Model, Result):
    """What `doctor` found."""

    trajkit_version: Name
    """This trajkit."""
    folder: Name
    """The working folder that was checked."""
    online: bool
    """Whether addresses outside of the configuration were called."""
    sections: tuple[Section, ...]
    """Every check."""
    n_broken: Count
    """Things that do not work."""
    n_notes: Count
    """Things that are missing or not finished."""

    @property
    def is_well(self) -> bool:
        """Whether everything works that is configured."""
        return self.n_broken == 0

    @property
    def exit_code(self) -> int:
        """1 when something that is configured does not work."""
        return 0 if self.is_well else 1

    def to_json(self) -> dict[str, Any]:
        """Whether all is well, and every check with its values."""
        return {"is_well": self.is_well, **self.model_dump(mode="json")}

    def __str__(self) -> str:
        return "\n".join(console.line(*pieces) for pieces in self._lines())

    def print_text(self) -> None:
        """Print the checks on stdout; on a terminal in colour, and no wider than it."""
        is_terminal = sys.stdout.isatty()
        width = max(_NARROWEST, shutil.get_terminal_size().columns) if is_terminal else _UNBOUND
        for line in self._lines(width):
            console.result(*line)

    def _lines(self, width: int = _UNBOUND) -> Iterator[tuple[str | Styled, ...]]:
        yield (styled(f"trajkit {self.trajkit_version} in {self.folder}", bold=True),)
        for section in self.sections:
            yield ()
            yield (styled(section.name, bold=True),)
            for check in section.checks:
                yield from _lines(check, width)
        yield ()
        notes = f"; {console.plural(self.n_notes, 'note')}" if self.n_notes else ""
        if self.is_well:
            yield styled("all that is configured works", fg="green", bold=True), notes
        else:
            things = "1 thing does" if self.n_broken == 1 else f"{console.count(self.n_broken)} things do"
            yield styled(f"{things} not work", fg="red", bold=True), notes


def _lines(check: Check, width: int) -> Iterator[tuple[str | Styled, ...]]:
    """The sign, the name and what was found, wrapped below itself; then what to do."""
    sign = _sign(check.standing)
    margin = " " * (len(sign) + 3)
    column = " " * (_NAMES + 1)
    lines = textwrap.wrap(
        f"{check.name:<{_NAMES}} {check.text}",
        width - len(margin),
        subsequent_indent=column,
        break_long_words=False,
        break_on_hyphens=False,
    )
    coloured = styled(sign, fg=_COLOURS[check.standing], bold=True)
    yield "  ", coloured, f" {lines[0]}"
    yield from ((f"{margin}{line}",) for line in lines[1:])
    if check.todo is not None:  # not wrapped: it may be a command to be copied
        yield (styled(f"{margin}{column}{check.todo}", fg="cyan"),)


def _sign(standing: Standing) -> str:
    try:
        "".join(_SIGNS.values()).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return _WORDS[standing]
    return _SIGNS[standing]


def well(name: str, text: str, **facts: object) -> Check:
    """Something that works."""
    return _check(name, Standing.WELL, text, None, facts)


def note(name: str, text: str, todo: str | None = None, **facts: object) -> Check:
    """Something that is missing or not finished, which nothing that is configured needs."""
    return _check(name, Standing.NOTE, text, todo, facts)


def broken(name: str, text: str, todo: str | None = None, **facts: object) -> Check:
    """Something that exists or is configured, and does not work."""
    return _check(name, Standing.BROKEN, text, todo, facts)


def _check(name: str, standing: Standing, text: str, todo: str | None, facts: dict[str, object]) -> Check:
    """What a service said may repeat a key."""
    return Check.model_validate(
        {
            "name": name,
            "standing": standing,
            "text": hidden(text),
            "todo": todo and hidden(todo),
            "facts": facts,
        }
    )
