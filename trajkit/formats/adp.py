"""The Agent Data Protocol: a trajectory is a list of actions and observations, a line of JSON each.

Written as version 1.3.1; every version 1 is read. What it has no field for is in `details.trajkit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trajkit.formats.adp_read import read_items, sizes_of
from trajkit.formats.adp_write import items_of
from trajkit.formats.base import Document, EpisodeFormat
from trajkit.formats.chat_conversation import tools_of
from trajkit.formats.chat_write import function_tool
from trajkit.formats.document import BadDocument, Reading, object_at, objects_at, shown
from trajkit.formats.profile import KEY, episode_from, profile_of
from trajkit.formats.profile import VERSION as VERSION_OF_PROFILE
from trajkit.formats.turns import answers_at, plain_cuts, read_cuts, turns_of
from trajkit.schema import Episode
from trajkit.schema.base import JsonObject

VERSION = "1.3.1"
"""What is written."""


def is_adp(value: Any) -> bool:
    """Whether a JSON value is a trajectory of this kind."""
    content = value.get("content") if isinstance(value, dict) else None
    return (
        isinstance(content, list)
        and "id" in value
        and all(isinstance(item, dict) and "class_" in item for item in content[:3])
    )


def read_adp(value: JsonObject) -> Reading:
    """The episode of a trajectory.

    Raises:
        BadDocument: It is none, or of another version than 1.
    """
    version = value.get("schema_version", VERSION)
    if not str(version).startswith("1."):
        raise BadDocument("no version that is read (1.x)", "schema_version", shown(version))
    details = object_at(value.get("details") or {}, "details")
    profile = details.get(KEY)
    episode = _read(value, details, profile)
    return Reading((episode,), profile is not None, bool(value.get("id")))


def write_adp(episode: Episode) -> Document:
    """The trajectory of an episode."""
    turns = turns_of(episode)
    items, sizes = items_of(episode, turns)
    value: dict[str, Any] = {
        "schema_version": VERSION,
        "id": episode.episode_id,
        "content": items,
        "details": {},
    }
    if tools := next((step.tools for step in episode.steps if step.tools), None):
        value["available_custom_tools"] = [str(tool["name"]) for tool in tools if "name" in tool]
        value["details"]["tools"] = [function_tool(tool) for tool in tools]
    rest = {"sizes": sizes} if sizes != sizes_of(items) else {}
    read = _read(value, value["details"], {"version": VERSION_OF_PROFILE, **rest, "cuts": turns.cuts})
    value["details"][KEY] = {**profile_of(episode, read, turns), **rest}
    return Document((value,))


def read_one(values: Sequence[JsonObject]) -> Episode:
    """The episode of a trajectory.

    Raises:
        BadDocument: It is none.
    """
    return read_adp(values[0]).episodes[0]


ADP = EpisodeFormat(
    name="adp",
    about="the Agent Data Protocol 1.3.1: a trajectory of actions and observations per line",
    write=write_adp,
    read=read_one,
)
"""Trajectories as the converters of the Agent Data Protocol take them."""


def _read(value: JsonObject, details: JsonObject, profile: Any) -> Episode:
    rest = None if profile is None else dict(object_at(profile, f"details.{KEY}"))
    sizes = None if rest is None else rest.pop("sizes", None)
    content = objects_at(value.get("content"), "content")
    messages, rewards = read_items(content, sizes)
    others = {name: item for name, item in details.items() if name not in (KEY, "tools")}
    fields = {
        "episode_id": value.get("id") or "unnamed",
        "source": "adp",
        "origin": {"details": others} if others else None,
    }
    episode = episode_from(fields, messages, rest)
    cuts = read_cuts((rest or {}).get("cuts"), messages) or plain_cuts(messages)
    own = (rest or {}).get("steps") or [{}] * len(episode.steps)
    tools = tools_of(details.get("tools"), "details.tools")
    steps = []
    for step, said, position in zip(episode.steps, own, answers_at(cuts), strict=True):
        update: dict[str, Any] = {}
        if position is not None and rewards[position] is not None and "reward" not in said:
            update["reward"] = rewards[position]
        if tools and "tools" not in said:
            update["tools"] = tools
        steps.append(step.model_copy(update=update) if update else step)
    return episode.model_copy(update={"steps": tuple(steps)})
