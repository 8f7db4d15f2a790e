"""What an ATIF document says and our nouns have no field for: it stays in `origin`, `extra` and tags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trajkit.formats.profile import KEY
from trajkit.schema import Episode
from trajkit.schema.base import JsonObject

FACTS = {
    "prompt_tokens": "n_input_tokens",
    "completion_tokens": "n_output_tokens",
    "cost_usd": "cost_usd",
    "prompt_token_ids": "prompt_token_ids",
    "completion_token_ids": "completion_token_ids",
    "logprobs": "logprobs",
}
"""Where our steps have what the metrics of a step say."""
_READ_OF_STEPS = frozenset(
    {
        "step_id",
        "timestamp",
        "source",
        "model_name",
        "message",
        "reasoning_content",
        "tool_calls",
        "observation",
        "metrics",
        "is_copied_context",
    }
)
_TAGS = (("agent", "name"), ("agent_version", "version"))


def tags_of(agent: dict[str, Any]) -> dict[str, str]:
    """Who acted, as tags."""
    return {name: str(agent[key]) for name, key in _TAGS if agent.get(key) is not None}


def origin_of(
    value: JsonObject, agent: dict[str, Any], extra: dict[str, Any], parent: Episode | None
) -> JsonObject:
    """What a document says that an episode has no field for, and who called it."""
    known = {"schema_version", "trajectory_id", "agent", "steps", "subagent_trajectories", "extra"}
    said: dict[str, Any] = {
        name: item for name, item in value.items() if name not in known and item is not None
    }
    if rest := {name: item for name, item in extra.items() if name != KEY}:
        said["extra"] = rest
    if agent.get("extra"):
        said["agent_extra"] = agent["extra"]
    origin: JsonObject = {"atif": said} if said else {}
    if parent is not None:
        origin["parent_episode_id"] = parent.episode_id
    return origin


def left_of_step(
    step: dict[str, Any],
    metrics: dict[str, Any],
    calls: Sequence[dict[str, Any]],
    extra: dict[str, Any],
) -> JsonObject | None:
    """What the step says and our step has no field for."""
    left = {name: item for name, item in step.items() if name not in _READ_OF_STEPS and item is not None}
    left.pop("extra", None)
    if more := {name: item for name, item in extra.items() if name != KEY}:
        left["extra"] = more
    if more := {name: item for name, item in metrics.items() if name not in FACTS and item is not None}:
        left["metrics"] = more
    # calls and results were checked when they were read
    of_calls = {call["tool_call_id"]: call["extra"] for call in calls if set(call.get("extra") or ()) - {KEY}}
    if of_calls:
        left["tool_call_extra"] = of_calls
    of_results = [
        {name: item for name, item in result.items() if name != "content" and item is not None}
        for result in (step.get("observation") or {}).get("results") or ()
        if result.get("subagent_trajectory_ref") or result.get("extra")
    ]
    if of_results:
        left["results"] = of_results
    return {"atif": left} if left else None
