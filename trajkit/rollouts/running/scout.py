"""Look at the tasks before the first episode: their metrics, step limits and lengths of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trajkit.environments.base import EnvironmentInfo, step_limit
from trajkit.rollouts.records.record import RETURN_METRIC


class Sight(NamedTuple):
    """Properties of an episode before its first action."""

    metrics: tuple[str, ...]
    """Metrics that it will end with, the return last."""
    max_steps: int | None
    """Its step limit; None when the environment gives none."""
    n_characters: int
    """Characters of its mission."""
    n_characters_seen: int
    """Characters of its first observation."""


def look(info: EnvironmentInfo, task: str, seed: int) -> Sight:
    """Begin an episode, read its properties, and close it.

    Raises:
        RolloutError: The environment failed.
        MissingExtra: Its package is not installed.
    """
    environment = info.make(task)
    try:
        start = environment.reset(seed)
        limit = step_limit(environment)
        metrics = (*environment.statistics(), RETURN_METRIC)
        return Sight(metrics, limit, len(start.mission), len(start.observation))
    finally:
        environment.close()


def all_metrics(sights: Sequence[Sight]) -> tuple[str, ...]:
    """The metrics of several tasks, the return last."""
    names = dict.fromkeys(name for sight in sights for name in sight.metrics if name != RETURN_METRIC)
    return (*names, RETURN_METRIC)
