"""Keep the values that a format has no field for in a profile beside it, so that nothing is lost.

A writer reads its own document back without the profile, and adds under the key `trajkit` only the fields
whose values differ. So a document without the key is read by the same rules, and no value is in two places.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from trajkit.formats.chat.turns import Turns, n_answered, plain_cuts, read_cuts, steps_of
from trajkit.formats.reading.document import BadDocument, episode_of, object_at, objects_at, shown
from trajkit.schema import Episode, Feedback, Message, Transition, UnknownBlock
from trajkit.schema.base import JsonObject

KEY = "trajkit"
"""Key of the profile in a document."""
VERSION = 1
"""Version of the profile."""
EPISODE_FIELDS = tuple(name for name in Episode.model_fields if name != "steps")
"""Fields of an episode besides its steps."""
STEP_FIELDS = tuple(name for name in Transition.model_fields if name != "step_index")
"""Fields of a step besides its index."""
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
"""Nouns whose plural ends with s, for fields whose names are not such nouns."""


def episode_rest(episode: Episode, read: Episode) -> JsonObject:
    """Return the fields of an episode, besides its steps, that differ after reading back."""
    return {"version": VERSION, **_rest(episode, read, EPISODE_FIELDS)}


def step_rest(step: Transition, read: Transition) -> JsonObject:
    """Return the fields of a step that differ after reading back."""
    return _rest(step, read, STEP_FIELDS)


def with_episode_rest(value: dict[str, Any], rest: Any) -> dict[str, Any]:
    """Return the fields of an episode with those of its profile.

    Raises:
        BadDocument: It is not a profile, or one of a newer trajkit.
    """
    rest = dict(object_at(rest, KEY))
    version = rest.pop("version", None)
    if version != VERSION:
        raise BadDocument(f"profile of another version than {VERSION}", KEY, shown(version))
    return _with(value, rest, EPISODE_FIELDS)


def with_step_rest(value: dict[str, Any], rest: Any) -> dict[str, Any]:
    """Return the fields of a step with those of its profile.

    Raises:
        BadDocument: It is not a profile.
    """
    return _with(value, object_at(rest, KEY), STEP_FIELDS)


def profile_of(episode: Episode, read: Episode, turns: Turns) -> JsonObject:
    """Return the profile of a document that is one list of messages.

    Args:
        episode: The written episode.
        read: The episode read back without a profile, except for the cuts.
        turns: The messages of the episode.
    """
    profile: dict[str, Any] = episode_rest(episode, read)
    if turns.cuts != plain_cuts(turns.messages):
        profile["cuts"] = [list(cut) for cut in turns.cuts]
    steps = [step_rest(step, other) for step, other in zip(episode.steps, read.steps, strict=True)]
    if any(steps):
        profile["steps"] = steps
    return profile


def episode_from(fields: dict[str, Any], messages: Sequence[Message], profile: Any) -> Episode:
    """Return the episode of a list of messages, with the values of its profile, if there is one.

    Args:
        fields: The document's fields of the episode.
        messages: All its messages.
        profile: Result of `profile_of`; None without one.

    Raises:
        BadDocument: It is not a profile of these messages.
    """
    if profile is None:
        steps = steps_of(messages)
        after = messages[n_answered(messages) :]
        if steps and after:
            steps[-1]["extra"] = {"messages_after": [plain(message) for message in after]}
        return episode_of({**fields, "steps": steps})
    rest = dict(object_at(profile, KEY))
    steps = steps_of(messages, read_cuts(rest.pop("cuts", None), messages))
    rests = objects_at(rest.pop("steps", None), f"{KEY}.steps") or [{}] * len(steps)
    if len(rests) != len(steps):
        raise BadDocument(
            f"not one per step, of which there are {len(steps)}", f"{KEY}.steps", str(len(rests))
        )
    merged = [with_step_rest(step, own) for step, own in zip(steps, rests, strict=True)]
    return episode_of({**with_episode_rest(fields, rest), "steps": merged})


def _rest(item: Any, read: Any, names: tuple[str, ...]) -> JsonObject:
    return {name: plain(getattr(item, name)) for name in differing(item, read, names)}


def _with(value: dict[str, Any], rest: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    for name in rest:
        if name not in names:
            raise BadDocument("not a field of trajkit", f"{KEY}.{name}")
    return {**value, **rest}


def _word(name: str) -> str:
    plain_name = name.removeprefix("n_").removesuffix("s").replace("_", " ")
    return _WORDS.get(name) or (f"{plain_name} count" if name.startswith("n_") else plain_name)


Field = StrEnum(  # type: ignore[misc]  # made from the models, so that no field is forgotten
    "Field",
    [
        (name.upper(), _word(name))
        for name in dict.fromkeys((*EPISODE_FIELDS, *STEP_FIELDS, "step", "conversation", "context_answer"))
    ],
)
"""A field of an episode or of a step, as a kind of loss. A `step` is a whole missing step, a `conversation`
another conversation into which an episode was cut, a `context answer` an assistant message in a prompt that a
reader takes for an answer."""


def differing(item: BaseModel, other: BaseModel, names: tuple[str, ...]) -> list[str]:
    """Return the names of the fields in which two items differ."""
    return [name for name in names if not same(getattr(item, name), getattr(other, name))]


def same(one: Any, other: Any) -> bool:
    """Whether two values of a field are equal, also as JSON, where 1, 1.0 and true differ."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, str | int):
        return bool(one == other)
    return one == other and json.dumps(plain(one)) == json.dumps(plain(other))


def plain(value: Any) -> Any:
    """Return a value of a field as JSON; null fields of messages are left out."""
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
        value.setdefault("data", None)  # required, and null is a valid value
    return value
