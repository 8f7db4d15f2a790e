"""The formats that can be imported, and how a document of each is recognised and read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from trajkit.errors import RequestError, TrajkitError
from trajkit.formats import format_named
from trajkit.formats.adp import is_adp, read_adp
from trajkit.formats.base import EpisodeFormat
from trajkit.formats.hf_messages import is_hf_messages, read_hf_messages
from trajkit.formats.openai_chat import is_openai_chat, read_openai_chat
from trajkit.formats.reading.alpaca import is_alpaca, read_alpaca
from trajkit.formats.reading.atif import is_atif, read_atif
from trajkit.formats.reading.atif_rows import Rows, usual_rows
from trajkit.formats.reading.document import BadDocument, Reading, shown
from trajkit.formats.reading.preference import is_preference, read_preference
from trajkit.formats.reading.sharegpt import is_sharegpt, read_sharegpt
from trajkit.schema import Episode
from trajkit.schema.base import JsonObject
from trajkit.sources.catalog import source_names


class Kind(NamedTuple):
    """A format whose documents are JSON values of their own."""

    is_one: Callable[[Any], bool]
    """Whether a value is such a document."""
    read: Callable[[JsonObject], Reading]
    """Returns its episodes."""
    allows_system_anywhere: bool = False
    """Whether system messages may follow others."""
    rows: Callable[[JsonObject], Rows | None] | None = None
    """The same for usual documents, several times as fast; None for others, which `read` looks at."""


KINDS = {
    "atif": Kind(is_atif, read_atif, allows_system_anywhere=True, rows=usual_rows),
    "adp": Kind(is_adp, read_adp),
    "preference": Kind(is_preference, read_preference),
    "sharegpt": Kind(is_sharegpt, read_sharegpt),
    "openai-chat": Kind(is_openai_chat, read_openai_chat),
    "hf-messages": Kind(is_hf_messages, read_hf_messages),
    "alpaca": Kind(is_alpaca, read_alpaca),
}
"""By name, in the order in which they are tried: of two similar formats the narrower comes first."""

OTHERS = ("sts", "inspect", "balrog", "harbor", "benchflow")
"""Formats whose documents are not single JSON values."""

NAMES = (*KINDS, *OTHERS)
"""Every format that `--from` takes; it also takes the sources of `trajkit.sources.catalog`."""


def kind_of(value: Any) -> str | None:
    """Return the format of a JSON value; None if it is unknown."""
    return next((name for name, kind in KINDS.items() if kind.is_one(value)), None)


def kind_named(name: str) -> Kind:
    """Return a format of JSON values by its name, or a user's own format at `module:NAME`.

    Raises:
        RequestError: There is none, or it cannot be read.
    """
    if name in KINDS:
        return KINDS[name]
    form = format_named(name)
    if not isinstance(form, EpisodeFormat):
        raise RequestError(
            f"{name} is not an episode format", hint="an EpisodeFormat of trajkit.formats.base"
        )
    return Kind(lambda _: True, lambda value: Reading((_read(form, value),)), allows_system_anywhere=True)


def _read(form: EpisodeFormat, value: JsonObject) -> Episode:
    try:
        episode = form.read((value,))
    except TrajkitError as error:
        raise BadDocument(error.message) from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise BadDocument(f"{form.name} cannot read it", value=shown(str(error))) from error
    if not isinstance(episode, Episode):
        raise RequestError(f"read of {form.name} returned a {type(episode).__name__}, not an Episode")
    return episode


def checked_name(name: str) -> str:
    """Return the name, if its format can be imported.

    Raises:
        RequestError: It is not.
    """
    if ":" in name:
        kind_named(name)
    elif name not in (*NAMES, *source_names()):
        known = ", ".join((*NAMES, *source_names()))
        raise RequestError(f"no format {name!r} to import", hint=f"known: {known}, module:NAME")
    return name


def allows_system_anywhere(name: str) -> bool:
    """Whether a format allows system messages after others."""
    if name in OTHERS:
        return name in ("harbor", "benchflow")
    return name in source_names() or kind_named(name).allows_system_anywhere
