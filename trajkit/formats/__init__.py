"""Other people's shapes: one protocol, one file per format, and the list of them. No files, no clocks."""

from __future__ import annotations

from trajkit.errors import RequestError
from trajkit.formats.base import Format
from trajkit.formats.openai import OPENAI_SFT

_KNOWN: dict[str, Format] = {one.name: one for one in (OPENAI_SFT,)}


def known() -> tuple[str, ...]:
    """Names of the formats that trajkit can write."""
    return tuple(_KNOWN)


def format_named(name: str) -> Format:
    """The format of this name.

    Raises:
        RequestError: There is no such format.
    """
    if name not in _KNOWN:
        raise RequestError(f"no format {name!r}", hint=f"known: {', '.join(known())}")
    return _KNOWN[name]
