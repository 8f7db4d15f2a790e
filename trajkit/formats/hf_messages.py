"""Rows of a Hugging Face dataset of conversations: `messages`, `tools`, and all other values in `metadata`.

Any dataset with a column `messages`, or with `prompt` and `completion`, can be read. Other fields of an
episode are written into `metadata`, which trainers ignore.
"""

from __future__ import annotations

import json
from typing import Any

from trajkit.formats.base import Document, EpisodeFormat
from trajkit.formats.chat.conversation import (
    chat_value,
    conversation_of,
    function_tool,
    tools_among,
    tools_of,
    weights_of,
)
from trajkit.formats.chat.turns import steps_of, turns_of
from trajkit.formats.profile import KEY, episode_from, profile_of
from trajkit.formats.reading.document import BadDocument, Reading, of_one, shown
from trajkit.schema import Episode
from trajkit.schema.base import JsonObject

_COLUMNS = ("messages", "prompt", "completion", "system", "tools", "metadata", "episode_id")
_WEIGHTS = frozenset({"weight", "loss_weight", "train"})


def is_hf_messages(value: Any) -> bool:
    """Whether a row is one of a dataset of conversations."""
    return isinstance(value, dict) and (
        _is_conversation(value.get("messages"))
        or (_is_conversation(value.get("prompt")) and _is_conversation(value.get("completion")))
    )


def read_hf_messages(value: JsonObject) -> Reading:
    """Return the episode of a row.

    Raises:
        BadDocument: It has no conversation.
    """
    sent: Any = value.get("messages")
    if sent is None and value.get("prompt") is not None:
        sent = [*_list(value["prompt"], "prompt"), *_list(value.get("completion"), "completion")]
    if isinstance(system := value.get("system"), str) and isinstance(sent, list):
        sent = [{"role": "system", "content": system}, *sent]
    messages = conversation_of(sent)
    tools = tools_of(value.get("tools")) or tools_of(tools_among(sent))
    metadata = _parsed(value.get("metadata"))
    profile = metadata.get(KEY) if isinstance(metadata, dict) else None
    others = {name: item for name, item in value.items() if name not in _COLUMNS and item is not None}
    if isinstance(metadata, dict) and set(metadata) - {KEY}:
        others["metadata"] = {name: item for name, item in metadata.items() if name != KEY}
    fields = {
        "episode_id": value.get("episode_id") or "unnamed",
        "source": "hf-messages",
        "origin": {"columns": others} if others else None,
    }
    episode = episode_from(fields, messages, profile)
    if profile is None and any(_WEIGHTS & one.keys() for one in sent):
        pairs = zip(episode.steps, weights_of(sent), strict=True)
        steps = tuple(step.model_copy(update=weight) for step, weight in pairs)
        episode = episode.model_copy(update={"steps": steps})
    if tools:
        steps = tuple(
            step if _has_own_tools(profile, step.step_index) else step.model_copy(update={"tools": tools})
            for step in episode.steps
        )
        episode = episode.model_copy(update={"steps": steps})
    return Reading((episode,), profile is not None, bool(value.get("episode_id")))


def write_hf_messages(episode: Episode) -> Document:
    """Return the row of an episode."""
    turns = turns_of(episode)
    row: dict[str, Any] = {
        "episode_id": episode.episode_id,
        "messages": [chat_value(message, has_objects=True) for message in turns.messages],
    }
    tools = next((step.tools for step in episode.steps if step.tools), None)
    row["tools"] = [function_tool(tool) for tool in tools] if tools else []
    # read back without the profile, except for the cuts, so that the profile has only what differs
    read_back = tools_of(row["tools"])
    steps = [{**step, "tools": read_back} for step in steps_of(conversation_of(row["messages"]), turns.cuts)]
    read = Episode.model_validate({"episode_id": episode.episode_id, "source": "hf-messages", "steps": steps})
    row["metadata"] = {KEY: profile_of(episode, read, turns)}
    return Document((row,))


HF_MESSAGES = EpisodeFormat(
    name="hf-messages",
    about="a Hugging Face dataset with a row per episode: messages, tools, metadata",
    write=write_hf_messages,
    read=of_one(read_hf_messages),
    is_trained_on=True,
)
"""Conversations as rows of Hugging Face datasets."""


def _is_conversation(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "role" in value[0]


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadDocument("not a list", where, shown(value))
    return value


def _parsed(value: Any) -> Any:
    """Parse the metadata, which may be JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value else None
    except (ValueError, RecursionError):
        return value


def _has_own_tools(profile: Any, step_index: int) -> bool:
    steps = profile.get("steps") if isinstance(profile, dict) else None
    return isinstance(steps, list) and bool(steps) and "tools" in steps[step_index]
