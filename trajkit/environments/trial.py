"""One task of an environment under examination, and what a check of it can find."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from trajkit.environments import typed_environment
from trajkit.environments.base import Environment, EnvironmentInfo
from trajkit.environments.fresh import Asked, Elsewhere, elsewhere
from trajkit.environments.trace import Trace, play
from trajkit.environments.watch import TooLong
from trajkit.errors import RolloutError


class Status(StrEnum):
    """How a check went."""

    PASSED = "passed"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class Finding(NamedTuple):
    """What a check found."""

    status: Status
    detail: str
    hint: str | None = None


def passed(detail: str, hint: str | None = None) -> Finding:
    """The promise is kept."""
    return Finding(Status.PASSED, detail, hint)


def warning(detail: str, hint: str | None = None) -> Finding:
    """It may be meant, and is worth a look."""
    return Finding(Status.WARNING, detail, hint)


def failed(detail: str, hint: str | None = None) -> Finding:
    """The promise is broken."""
    return Finding(Status.FAILED, detail, hint)


def skipped(detail: str) -> Finding:
    """There is nothing to look at."""
    return Finding(Status.SKIPPED, detail)


class Trial:
    """One task of an environment under examination.

    Args:
        env_id: The environment, as `typed_environment` takes it.
        settings: Its settings, as they were typed.
        info: What is known of it.
        task: The task.
        seeds: Episodes to begin.
        n_steps: Where an episode is cut off that does not end.
        limit_s: Longest that a check may take, in seconds.
    """

    def __init__(
        self,
        env_id: str,
        settings: Mapping[str, str],
        info: EnvironmentInfo,
        task: str,
        *,
        seeds: Sequence[int],
        n_steps: int,
        limit_s: float,
    ) -> None:
        self.asked = Asked(env_id, settings, task, tuple(seeds), n_steps)
        self.info = info
        self.seeds = tuple(seeds)
        self.n_steps = n_steps
        self.limit_s = limit_s
        self.unlisted: tuple[str, ...] = ()
        """Numbers in info that are no statistics, once episodes were played."""
        self._open: list[Environment] = []
        self._elsewhere: Elsewhere | RolloutError | TooLong | None = None

    def world(self) -> Environment:
        """Another environment for the task, which knows nothing of those before it."""
        world = typed_environment(self.asked.env_id, self.asked.settings).make(self.asked.task)
        self._open.append(world)
        return world

    def close(self) -> None:
        """Let go of the environments that a check made."""
        for world in self._open:
            world.close()
        self._open.clear()

    @functools.cached_property
    def traces(self) -> tuple[Trace, ...]:
        """An episode of random actions of each seed, all by one environment."""
        world = self.world()
        traces = tuple(play(world, seed, n_steps=self.n_steps) for seed in self.seeds)
        self.unlisted = getattr(world, "unlisted", ())
        return traces

    @property
    def elsewhere(self) -> Elsewhere:
        """The same episodes in a fresh process, which is started once."""
        if self._elsewhere is None:
            try:
                self._elsewhere = elsewhere(self.asked, limit_s=self.limit_s)
            except (RolloutError, TooLong) as error:
                self._elsewhere = error
        if isinstance(self._elsewhere, Elsewhere):
            return self._elsewhere
        raise self._elsewhere
