"""Read preference rows: two answers to one prompt, one of them preferred.

A row becomes two episodes with the same prompt and the metric `preferred`, 1 and 0: `trajkit pairs --match
prompt --score preferred` makes pairs of them. Known rows: TRL's `prompt, chosen, rejected` (texts or
messages), OpenAI's `input, preferred_output, non_preferred_output`, LLaMA-Factory's `conversations` with
`chosen` and `rejected`, its v1 `chosen_messages, rejected_messages`, and Alpaca's instruction with both
sides.
"""

from __future__ import annotations

import hashlib
from typing import Any

from trajkit.formats.chat.conversation import conversation_of, tools_of
from trajkit.formats.profile import episode_from, plain
from trajkit.formats.reading.atif_parts import compact
from trajkit.formats.reading.document import BadDocument, Reading, object_at, shown
from trajkit.formats.reading.sharegpt import role_of
from trajkit.schema import Episode
from trajkit.schema.base import JsonObject

METRIC = "preferred"
"""Metric with 1 for the chosen side, 0 for the other."""
SIDES = (
    ("chosen", "rejected"),
    ("chosen_messages", "rejected_messages"),
    ("preferred_output", "non_preferred_output"),
)
"""The fields of the chosen and of the rejected side."""
_KNOWN = frozenset(
    {
        "prompt",
        "input",
        "conversations",
        "instruction",
        "system",
        "tools",
        *(name for pair in SIDES for name in pair),
    }
)


def is_preference(value: Any) -> bool:
    """Whether a row has a chosen and a rejected side."""
    return isinstance(value, dict) and _sides(value) is not None


def read_preference(value: JsonObject) -> Reading:
    """Return the two episodes of a row, the chosen one first.

    Raises:
        BadDocument: A side is not an answer.
    """
    sides = _sides(value)
    if sides is None:
        raise BadDocument("no chosen and rejected side")
    prompt, tools = _prompt(value), value.get("tools")
    if isinstance(asked := value.get("input"), dict):  # OpenAI's
        tools = tools or asked.get("tools")
    others = {name: item for name, item in value.items() if name not in _KNOWN and item is not None}
    origin: dict[str, Any] = {"columns": others} if others else {}
    episodes = tuple(
        _side([*prompt, *_messages(value[name], name)], name, is_chosen, tools_of(tools), origin)
        for name, is_chosen in zip(sides, (True, False), strict=True)
    )
    return Reading(episodes, is_named=False)


def _sides(value: dict[str, Any]) -> tuple[str, str] | None:
    for pair in SIDES:
        if all(isinstance(value.get(name), str | list | dict) for name in pair):
            return pair
    return None


def _prompt(value: JsonObject) -> list[Any]:
    """Return the messages before both sides; none if each side repeats them."""
    system = [{"role": "system", "content": value["system"]}] if value.get("system") else []
    asked: Any = value.get("prompt", value.get("conversations"))
    if isinstance(asked, list):
        return [*system, *_messages(asked, "prompt")]
    given = value.get("input")
    if asked is None and isinstance(given, dict):
        return [*system, *_messages(given.get("messages"), "input.messages")]
    if asked is None and value.get("instruction"):
        asked = "\n".join(str(text) for text in (value["instruction"], given) if text)
    return [*system, {"role": "user", "content": asked}] if asked is not None else system


def _messages(side: Any, where: str) -> list[Any]:
    """Return an answer as messages: it may be a text, a message or messages, also in ShareGPT's dialect."""
    if isinstance(side, str):
        return [{"role": "assistant", "content": side}]
    listed = [side] if isinstance(side, dict) else side
    if not isinstance(listed, list):
        raise BadDocument("not a list", where, shown(side))
    messages = [object_at(one, f"{where}.{position}") for position, one in enumerate(listed)]
    return [
        {"role": role_of(one["from"], where), "content": one.get("value")} if "from" in one else one
        for one in messages
    ]


def _side(
    sent: list[Any], name: str, is_chosen: bool, tools: tuple[JsonObject, ...] | None, origin: JsonObject
) -> Episode:
    messages = conversation_of(sent, name)
    before = compact([plain(message) for message in messages[:-1]])
    fields = {
        "episode_id": "unnamed" if is_chosen else "unnamed/rejected",
        "source": "preference",
        "metrics": {METRIC: float(is_chosen)},
        # both sides have one world, which a split must not separate
        "initial_state_hash": f"text:{hashlib.sha256(before.encode()).hexdigest()}",
        "origin": {**origin, "side": name},
    }
    episode = episode_from(fields, messages, None)
    if not episode.steps or messages[-1].role != "assistant":
        raise BadDocument("a side that does not end in an answer", name)
    # earlier answers are context: only the last one is compared
    steps = [
        step.model_copy(update={"tools": tools, **({} if step is episode.steps[-1] else _CONTEXT)})
        for step in episode.steps
    ]
    return episode.model_copy(update={"steps": tuple(steps)})


_CONTEXT = {"loss_weight": 0.0, "mask_reason": "before the answer that is compared"}
