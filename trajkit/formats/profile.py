"""What a format has no field for, kept beside it: what of an episode reading the rest does not give back.

Whoever writes a document reads it at once as a stranger would, and adds under the key `trajkit` the fields
that came out otherwise, and no others. So a document without the key is read by the same rules, what its own
fields can say is said there only, and nothing is lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from trajkit.formats.document import BadDocument, episode_of, object_at, objects_at, shown
from trajkit.formats.turns import Turns, cuts_value, n_answered, read_cuts, steps_of
from trajkit.schema import Episode, Feedback, Message, Transition, UnknownBlock
from trajkit.schema.base import JsonObject

KEY = "trajkit"
"""Where the profile is in a document."""
VERSION = 1
"""Of the profile."""
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


def episode_rest(episode: Episode, read: Episode) -> JsonObject:
    """What of an episode, beside its steps, reading did not give back."""
    return {"version": VERSION, **_rest(episode, read, EPISODE_FIELDS)}


def step_rest(step: Transition, read: Transition) -> JsonObject:
    """What of a step reading did not give back."""
    return _rest(step, read, STEP_FIELDS)


def with_episode_rest(value: dict[str, Any], rest: Any) -> dict[str, Any]:
    """The fields of an episode with those of its profile.

    Raises:
        BadDocument: It is no profile, or one of a newer trajkit.
    """
    rest = dict(object_at(rest, KEY))
    version = rest.pop("version", None)
    if version != VERSION:
        raise BadDocument(f"profile of another version than {VERSION}", KEY, shown(version))
    return _with(value, rest, EPISODE_FIELDS)


def with_step_rest(value: dict[str, Any], rest: Any) -> dict[str, Any]:
    """The fields of a step with those of its profile.

    Raises:
        BadDocument: It is no profile.
    """
    return _with(value, object_at(rest, KEY), STEP_FIELDS)


def profile_of(episode: Episode, read: Episode, turns: Turns) -> JsonObject:
    """The profile of a document that is one list of messages.

    Args:
        episode: What was written.
        read: What reading the document without a profile gives, but for the cuts.
        turns: The messages of the episode.
    """
    profile: dict[str, Any] = episode_rest(episode, read)
    if (cuts := cuts_value(turns)) is not None:
        profile["cuts"] = cuts
    steps = [step_rest(step, other) for step, other in zip(episode.steps, read.steps, strict=True)]
    if any(steps):
        profile["steps"] = steps
    return profile


def episode_from(fields: dict[str, Any], messages: Sequence[Message], profile: Any) -> Episode:
    """The episode of a list of messages, with what its profile says, if there is one.

    Args:
        fields: What the document says of the episode.
        messages: All of its messages.
        profile: As `profile_of` made it; None when there is none.

    Raises:
        BadDocument: It is no profile of these messages.
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
            raise BadDocument("no field of ours", f"{KEY}.{name}")
    return {**value, **rest}


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
