"""A check and what came of it."""

from __future__ import annotations

from enum import StrEnum

from trajkit._core.secrets import hidden
from trajkit.schema import Model
from trajkit.schema.base import Count, JsonObject, Name, Text


class Standing(StrEnum):
    """How something is."""

    WELL = "well"
    """It works, as far as was looked."""
    NOTE = "note"
    """It is not there or not finished, and nothing that is configured needs it."""
    BROKEN = "broken"
    """It is there or configured, and does not work."""


class Check(Model):
    """One thing that was looked at."""

    name: Name
    """What it is."""
    standing: Standing
    """How it is."""
    text: Text
    """What was found; holds no secret."""
    todo: Text | None = None
    """What to do about it: a command, or a sentence. None where nothing is to be done."""
    facts: JsonObject = {}
    """The same as values, for programs."""


class Section(Model):
    """Checks of one kind."""

    name: Name
    """What they are about."""
    checks: tuple[Check, ...]
    """In the order in which they are read."""


class Checkup(Model):
    """What `doctor` found."""

    trajkit_version: Name
    """This trajkit."""
    folder: Name
    """The working folder that was looked at."""
    online: bool
    """Whether addresses outside of the configuration were asked."""
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


def well(name: str, text: str, **facts: object) -> Check:
    """Something that works."""
    return _check(name, Standing.WELL, text, None, facts)


def note(name: str, text: str, todo: str | None = None, **facts: object) -> Check:
    """Something that is missing or not finished, which nothing that is configured needs."""
    return _check(name, Standing.NOTE, text, todo, facts)


def broken(name: str, text: str, todo: str | None = None, **facts: object) -> Check:
    """Something that is there or configured, and does not work."""
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
