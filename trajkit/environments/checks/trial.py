"""One task of an environment that is checked, and the possible results of a check."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from trajkit.environments import typed_environment
from trajkit.environments.base import Environment, EnvironmentInfo
from trajkit.environments.checks.fresh import Asked, Elsewhere, elsewhere
from trajkit.environments.checks.trace import Trace, play
from trajkit.environments.watch import TooLong
from trajkit.errors import RolloutError


class Status(StrEnum):
    """The status of a check."""

    PASSED = "passed"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class Finding(NamedTuple):
    """The result of a check."""

    status: Status
    detail: str
    hint: str | None = None


passed = functools.partial(Finding, Status.PASSED)
warning = functools.partial(Finding, Status.WARNING)
"""It may be intended, but deserves attention."""
failed = functools.partial(Finding, Status.FAILED)
skipped = functools.partial(Finding, Status.SKIPPED)
"""The check does not apply."""


class Trial:
    """One task of an environment that is checked.

    Args:
        env_id: The environment, as for `typed_environment`.
        settings: Settings, as they were typed.
        info: Description of the environment.
        task: The task.
        seeds: Seeds to play.
        n_steps: Number of steps after which an episode is stopped.
        limit_s: Time limit of a check, in seconds.
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
        """Numbers in info that are not statistics, known after the episodes were played."""
        self._open: list[Environment] = []
        self._elsewhere: Elsewhere | RolloutError | TooLong | None = None

    def world(self) -> Environment:
        """Create another instance for the task."""
        world = typed_environment(self.asked.env_id, self.asked.settings).make(self.asked.task)
        self._open.append(world)
        return world

    def close(self) -> None:
        """Close the instances that a check created."""
        for world in self._open:
            world.close()
        self._open.clear()

    @functools.cached_property
    def traces(self) -> tuple[Trace, ...]:
        """Play a random episode of each seed in one instance."""
        world = self.world()
        traces = tuple(play(world, seed, n_steps=self.n_steps) for seed in self.seeds)
        self.unlisted = getattr(world, "unlisted", ())
        return traces

    @property
    def elsewhere(self) -> Elsewhere:
        """Play the same episodes in a new process, which is started once."""
        if self._elsewhere is None:
            try:
                self._elsewhere = elsewhere(self.asked, limit_s=self.limit_s)
            except (RolloutError, TooLong) as error:
                self._elsewhere = error
        if isinstance(self._elsewhere, Elsewhere):
            return self._elsewhere
        raise self._elsewhere
