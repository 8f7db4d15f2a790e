"""Fields of our nouns by name, as losses name them, and which of them an episode fills."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from trajkit.schema import Episode, Feedback, Message, Transition, UnknownBlock

EPISODE_FIELDS = tuple(name for name in Episode.model_fields if name != "steps")
"""What an episode says beside its steps."""
STEP_FIELDS = tuple(name for name in Transition.model_fields if name != "step_index")
"""What a step says beside its place."""

_WORDS = {
    "started_at": "start time",
    "ended_at": "end time",
    "latency_s": "latency value",
    "cost_usd": "cost",
    "info": "info object",
    "extra": "extra object",
    "input": "template input",
    "feedback": "feedback list",
    "action_executed": "executed action",
    "action_valid": "validity mark",
    "terminated": "end mark",
    "truncated": "cut mark",
    "cached": "cache mark",
    "initial_state_hash": "initial state",
    "snapshot_hash": "snapshot",
    "n_prompt_kept": "prompt length",
}
"""Names that are no nouns that take an s."""


def _word(name: str) -> str:
    plain_name = name.removeprefix("n_").removesuffix("s").replace("_", " ")
    return _WORDS.get(name) or (f"{plain_name} count" if name.startswith("n_") else plain_name)


Field = StrEnum(  # type: ignore[misc]  # made of the models, so that no field can be forgotten
    "Field",
    [
        (name.upper(), _word(name))
        for name in dict.fromkeys((*EPISODE_FIELDS, *STEP_FIELDS, "step", "conversation", "context_answer"))
    ],
)
"""A field of an episode or of a step, as a kind of loss. A `step` is one that is not there at all, a
`conversation` one more into which an episode was cut, a `context answer` a message of the assistant in a
prompt that a reader takes for an answer."""


def differing(item: BaseModel, other: BaseModel, names: tuple[str, ...]) -> list[str]:
    """The fields that two items do not have in common."""
    return [name for name in names if not same(getattr(item, name), getattr(other, name))]


def same(one: Any, other: Any) -> bool:
    """Whether two values of a field are one: also as JSON, where 1, 1.0 and true are three."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, str | int):
        return bool(one == other)
    return one == other and json.dumps(plain(one)) == json.dumps(plain(other))


def plain(value: Any) -> Any:
    """A value of a field as JSON; of messages and feedback what is null is left out."""
    match value:
        case Message():
            return {"role": value.role.value, "content": [_block(block) for block in value.content]}
        case Feedback():
            return value.model_dump(mode="json")
        case tuple() | list():
            return [plain(item) for item in value]
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case StrEnum():
            return value.value
        case _ if hasattr(value, "isoformat"):
            return value.isoformat().replace("+00:00", "Z")
        case _:
            return value


def _block(block: BaseModel) -> dict[str, Any]:
    value = {name: item for name, item in block.model_dump(mode="json").items() if item is not None}
    if isinstance(block, UnknownBlock):
        value.setdefault("data", None)  # required, and null is a value like any other
    return value
