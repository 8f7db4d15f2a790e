"""The formats of training files and traces: one file per format, and their list. No files, no clocks."""

from __future__ import annotations

import difflib
import importlib
from typing import get_args

from trajkit.errors import RequestError
from trajkit.formats.base import Format

__all__ = [
    "adp",
    "base",
    "chat",
    "format_named",
    "hf_messages",
    "known",
    "openai",
    "openai_chat",
    "reading",
    "rl",
    "sts",
    "text",
    "tokens",
    "trl",
    "validation",
]

# Place of each format, which is imported only when it is used.
_PLACES: dict[str, str] = {
    "openai-sft": "trajkit.formats.openai:OPENAI_SFT",
    "openai-dpo": "trajkit.formats.openai:OPENAI_DPO",
    "trl-messages": "trajkit.formats.trl:TRL_MESSAGES",
    "trl-prompt-completion": "trajkit.formats.trl:TRL_PROMPT_COMPLETION",
    "trl-preference": "trajkit.formats.trl:TRL_PREFERENCE",
    "trl-kto": "trajkit.formats.trl:TRL_KTO",
    "trl-grpo": "trajkit.formats.trl:TRL_GRPO",
    "sharegpt": "trajkit.formats.sharegpt:SHAREGPT",
    "axolotl": "trajkit.formats.axolotl:AXOLOTL",
    "together": "trajkit.formats.openai:TOGETHER",
    "fireworks": "trajkit.formats.openai:FIREWORKS",
    "vertex": "trajkit.formats.vertex:VERTEX",
    "text": "trajkit.formats.text:TEXT",
    "transitions": "trajkit.formats.rl:TRANSITIONS",
    "tinker": "trajkit.formats.rl:TINKER",
    "verl": "trajkit.formats.rl:VERL",
    "prime-rl": "trajkit.formats.rl:PRIME_RL",
    "atif": "trajkit.formats.atif:ATIF",
    "adp": "trajkit.formats.adp:ADP",
    "sts": "trajkit.formats.sts:STS",
    "openai-chat": "trajkit.formats.openai_chat:OPENAI_CHAT",
    "hf-messages": "trajkit.formats.hf_messages:HF_MESSAGES",
}


def known() -> tuple[str, ...]:
    """Return the names of the formats that trajkit can write."""
    return tuple(_PLACES)


def format_named(name: str) -> Format:
    """Return the format of this name, or at this place.

    Args:
        name: A name of `known`, or `module:NAME` of your own format.

    Raises:
        RequestError: The format does not exist.
    """
    place = _PLACES.get(name, name)
    module_name, colon, attribute = place.partition(":")
    if not colon:
        near = difflib.get_close_matches(name, known(), n=1)
        guess = f"did you mean {near[0]}? " if near else ""
        raise RequestError(f"no format {name!r}", hint=f"{guess}known: {', '.join(known())}")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise RequestError(f"no format at {name!r}: {error}") from error
    if not isinstance(found, get_args(Format)):
        raise RequestError(
            f"{name} is a {type(found).__name__}, not a format", hint="see trajkit.formats.base"
        )
    return found  # type: ignore[no-any-return]
