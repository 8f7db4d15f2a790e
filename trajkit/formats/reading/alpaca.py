"""Read Alpaca's rows: an instruction, optionally an input for it, and the output."""

from __future__ import annotations

from typing import Any

from trajkit.formats.profile import episode_from
from trajkit.formats.reading.document import BadDocument, Reading, shown, text_at
from trajkit.schema import message
from trajkit.schema.base import JsonObject

_KNOWN = ("instruction", "input", "output", "system", "history")


def is_alpaca(value: Any) -> bool:
    """Whether a row has an instruction and an output."""
    return isinstance(value, dict) and all(
        isinstance(value.get(name), str) for name in ("instruction", "output")
    )


def read_alpaca(value: JsonObject) -> Reading:
    """Return the episode of a row, with the turns of `history` first.

    Raises:
        BadDocument: A field has the wrong type.
    """
    try:
        messages = [message("system", text_at(value["system"], "system"))] if value.get("system") else []
        for position, turn in enumerate(_history(value.get("history"))):
            asked, answered = (text_at(text, f"history.{position}") for text in turn)
            messages += [message("user", asked), message("assistant", answered)]
        given = text_at(value.get("input") or "", "input")
        asked = "\n".join(text for text in (str(value["instruction"]), given) if text)
        messages += [message("user", asked), message("assistant", str(value["output"]))]
    except ValueError as error:  # half of a surrogate pair
        raise BadDocument("not text", value=shown(str(error))) from error
    others = {name: item for name, item in value.items() if name not in _KNOWN and item is not None}
    origin = {"columns": others} if others else None
    fields = {"episode_id": "unnamed", "source": "alpaca", "origin": origin}
    return Reading((episode_from(fields, messages, None),), is_named=False)


def _history(turns: Any) -> list[list[Any]]:
    if not isinstance(turns, list | None):
        raise BadDocument("not a list", "history", shown(turns))
    for position, turn in enumerate(turns or []):
        if not isinstance(turn, list) or len(turn) != 2:
            raise BadDocument("not a pair of texts", f"history.{position}", shown(turn))
    return turns or []
