"""What a format has no field for, kept beside it: what of an episode reading the rest does not give back.

Whoever writes a document reads it at once as a stranger would, and adds under the key `trajkit` the fields
that came out otherwise, and no others. So a document without the key is read by the same rules, what its own
fields can say is said there only, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trajkit.formats.document import BadDocument, episode_of, object_at, objects_at, shown
from trajkit.formats.fields import EPISODE_FIELDS, STEP_FIELDS, differing, plain
from trajkit.formats.turns import Turns, cuts_value, n_answered, read_cuts, steps_of
from trajkit.schema import Episode, Message, Transition
from trajkit.schema.base import JsonObject

KEY = "trajkit"
"""Where the profile is in a document."""
VERSION = 1
"""Of the profile."""


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
