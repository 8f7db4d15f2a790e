"""Read trials of Harbor: the trajectory, and the verifier's rewards as metrics, because ATIF has none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trajkit.formats.profile import EPISODE_FIELDS
from trajkit.formats.reading.atif import read_atif, tags_of
from trajkit.formats.reading.document import (
    BadDocument,
    Reading,
    episode_of,
    object_at,
    part_of,
    renamed,
    shown,
)
from trajkit.schema import Episode, Outcome, Transition


def is_trial(value: Any) -> bool:
    """Whether a JSON value is the result of a trial."""
    return (
        isinstance(value, dict)
        and {"task_name", "trial_name"} <= value.keys()
        and bool({"agent_info", "verifier_result", "exception_info", "task_checksum"} & value.keys())
    )


def error_of(result: dict[str, Any]) -> str | None:
    """Return how a trial failed; None if it did not."""
    info = result.get("exception_info")
    return str(info.get("exception_type") or "an error") if isinstance(info, dict) else None


def read_trial(
    result: dict[str, Any], trajectories: Sequence[dict[str, Any]], verifier: Mapping[str, Any] | None
) -> Reading:
    """Return the episode of a trial, then those of its sub-agents.

    Args:
        result: The trial's `result.json`.
        trajectories: The agent's trajectory and its continuations, in order; at least one.
        verifier: The rewards of the verifier's own file; None without one.

    Raises:
        BadDocument: A trajectory is invalid, or a reward is not a number.
    """
    if not is_trial(result):
        raise BadDocument("not the result of a trial", value=shown(sorted(result)))
    readings = [read_atif(trajectory) for trajectory in trajectories]
    rewards = part_of(result, "verifier_result").get("rewards")
    metrics = rewards_of(verifier if rewards is None else rewards, "verifier_result.rewards")
    agent = part_of(result, "agent_info")
    model = part_of(agent, "model_info", "agent_info").get("name")
    main = joined([reading.episodes[0] for reading in readings])
    own = fields_of(main)
    own |= {
        "episode_id": str(result.get("id") or result["trial_name"]),
        "source": "harbor",
        "env_id": own["env_id"] or result.get("source"),
        "task": str(result["task_name"]),
        "started_at": result.get("started_at") or own["started_at"],
        "ended_at": result.get("finished_at") or own["ended_at"],
        "metrics": {**own["metrics"], **metrics},
        "outcome": outcome_of(metrics, is_error=error_of(result) is not None),
        "tags": {**own["tags"], **tags_of(agent)},
        "origin": {**(own["origin"] or {}), "harbor": _origin(result)},
        "steps": with_model(main.steps, model),
    }
    episode = episode_of(own)
    others = [sub for reading in readings for sub in renamed(reading.episodes, episode.episode_id)[1:]]
    return Reading((episode, *(_of(sub, episode) for sub in others)))


def subs_of(parent: Episode, trajectories: Sequence[dict[str, Any]]) -> list[Episode]:
    """Return the episodes of sub-agents whose trajectories are separate files.

    Raises:
        BadDocument: One is not a trajectory.
    """
    found = []
    for trajectory in trajectories:
        reading = read_atif(trajectory)
        own = renamed(reading.episodes, f"{parent.episode_id}/{reading.episodes[0].episode_id}")
        origin = {**(own[0].origin or {}), "parent_episode_id": parent.episode_id}
        found += [own[0].model_copy(update={"origin": origin}), *own[1:]]
    return [_of(episode, parent) for episode in found]


def joined(parts: Sequence[Episode]) -> Episode:
    """Join the steps of episodes that continue each other; a continuation repeats its context."""
    first = parts[0]
    steps: list[Transition] = []
    for part in parts:
        for step in part.steps:
            steps.append(step.model_copy(update={"step_index": len(steps)}))
    times = [part.ended_at for part in parts if part.ended_at is not None]
    return first.model_copy(update={"steps": tuple(steps), "ended_at": max(times, default=None)})


def fields_of(episode: Episode) -> dict[str, Any]:
    """Return the fields of an episode, so that some can be changed."""
    return {**{name: getattr(episode, name) for name in EPISODE_FIELDS}, "steps": episode.steps}


def rewards_of(rewards: Any, where: str) -> dict[str, float]:
    """Return rewards as metrics, without null ones.

    Raises:
        BadDocument: A reward is not a finite number.
    """
    metrics = {}
    for name, value in object_at(rewards or {}, where).items():
        if value is None:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise BadDocument("a reward that is not a number", f"{where}.{name}", shown(value))
        metrics[name] = float(value)
    return metrics


def outcome_of(metrics: Mapping[str, float], *, is_error: bool) -> Outcome:
    """Return the outcome: success for a reward of at least 1, else failure; unknown without the metric."""
    if is_error:
        return Outcome.ERROR
    if "reward" not in metrics:
        return Outcome.UNKNOWN
    return Outcome.SUCCESS if metrics["reward"] >= 1 else Outcome.FAILURE


def _of(sub: Episode, parent: Episode) -> Episode:
    """Give a sub-agent the task of its caller."""
    return sub.model_copy(update={"task": parent.task, "env_id": parent.env_id, "source": "harbor"})


def with_model(steps: Sequence[Transition], model: Any) -> tuple[Transition, ...]:
    """Return steps with a model's name where they have none."""
    if not isinstance(model, str):
        return tuple(steps)
    return tuple(
        step if step.model_name is not None else step.model_copy(update={"model_name": model})
        for step in steps
    )


def _origin(result: dict[str, Any]) -> dict[str, Any]:
    names = ("trial_name", "source", "task_checksum", "agent_result")
    origin = {name: result[name] for name in names if result.get(name) is not None}
    if error := error_of(result):
        origin["exception_type"] = error
    return origin
