"""The formats that can be imported, and how a document of each is recognised and read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from trajkit.errors import RequestError
from trajkit.formats.adp import is_adp, read_adp
from trajkit.formats.atif_read import is_atif, read_atif
from trajkit.formats.atif_rows import Rows, usual_rows
from trajkit.formats.document import Reading
from trajkit.formats.hf_messages import is_hf_messages, read_hf_messages
from trajkit.formats.openai_chat import is_openai_chat, read_openai_chat
from trajkit.formats.sharegpt_read import is_sharegpt, read_sharegpt
from trajkit.schema.base import JsonObject


class Kind(NamedTuple):
    """A format whose documents are JSON values of their own."""

    is_one: Callable[[Any], bool]
    """Whether a value is such a document."""
    read: Callable[[JsonObject], Reading]
    """Its episodes."""
    allows_system_anywhere: bool = False
    """Whether a message of the system may stand in the middle."""
    rows: Callable[[JsonObject], Rows | None] | None = None
    """The same for usual documents, several times as fast; None for others, which `read` looks at."""


KINDS = {
    "atif": Kind(is_atif, read_atif, allows_system_anywhere=True, rows=usual_rows),
    "adp": Kind(is_adp, read_adp),
    "sharegpt": Kind(is_sharegpt, read_sharegpt),
    "openai-chat": Kind(is_openai_chat, read_openai_chat),
    "hf-messages": Kind(is_hf_messages, read_hf_messages),
}
"""By name, in the order in which they are tried: the last two have much in common."""

OTHERS = ("sts", "inspect", "balrog", "harbor", "benchflow")
"""Formats whose documents are more than one JSON value, or one file."""

NAMES = (*KINDS, *OTHERS)
"""Everything that `--from` takes."""


def kind_of(value: Any) -> str | None:
    """The format of a JSON value; None when it is of none that is known."""
    return next((name for name, kind in KINDS.items() if kind.is_one(value)), None)


def checked_name(name: str) -> str:
    """The name, if it is one of a format that can be imported.

    Raises:
        RequestError: It is not.
    """
    if name not in NAMES:
        raise RequestError(f"no format {name!r} to import", hint=f"known: {', '.join(NAMES)}")
    return name
