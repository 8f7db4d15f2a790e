"""An episode as an exchange of texts between a model and a world."""

from __future__ import annotations

from collections.abc import Sequence

from trajkit.environments.base import Environment, EnvironmentInfo
from trajkit.errors import RequestError

OVER = "The episode is over."
"""The last thing that a model reads."""


def known_tasks(info: EnvironmentInfo, tasks: Sequence[str] | None) -> tuple[str, ...]:
    """The tasks that were named, or all of the environment.

    Raises:
        RequestError: It has no such task.
    """
    for task in tasks or ():
        if task not in info.tasks:
            raise RequestError(f"no task {task!r} in {info.env_id}", hint=f"tasks: {', '.join(info.tasks)}")
    return info.tasks if tasks is None else tuple(tasks)


class Exchange:
    """Plays one episode after the other. One environment is made for each task, and kept."""

    def __init__(self, info: EnvironmentInfo) -> None:
        self._info = info
        self._made: dict[str, Environment] = {}
        self._environment: Environment | None = None
        self.total_reward = 0.0
        """Sum of the rewards of the episode so far."""
        self.is_over = True
        """Whether the episode was terminated or truncated, or none was begun."""

    def begin(self, task: str, seed: int) -> str:
        """Begin the world of a seed.

        Returns:
            The mission and the first observation.

        Raises:
            RequestError: There is no such task.
            RolloutError: The environment failed.
        """
        if task not in self._made:
            known_tasks(self._info, [task])
            self._made[task] = self._info.make(task)
        self._environment = self._made[task]
        start = self._environment.reset(seed)
        self.total_reward, self.is_over = 0.0, False
        return self._with_actions(f"{start.mission}\n\n{start.observation}")

    def act(self, action: str | None) -> str:
        """Carry out an action; None for an answer without one. After the end nothing is carried out.

        Returns:
            The next observation.

        Raises:
            RolloutError: The environment failed.
        """
        if self._environment is None or self.is_over:
            return OVER
        result = self._environment.step(action)
        self.total_reward += result.reward
        self.is_over = result.terminated or result.truncated
        if self.is_over:
            return f"{result.observation}\n\n{OVER}"
        return self._with_actions(result.observation)

    def statistics(self) -> dict[str, float]:
        """The environment's scores of the episode so far."""
        return {} if self._environment is None else self._environment.statistics()

    def close(self) -> None:
        """Close the environments. A later `begin` makes new ones."""
        for environment in self._made.values():
            environment.close()
        self._made.clear()
        self._environment, self.is_over = None, True

    def _with_actions(self, text: str) -> str:
        """With the actions open now, where they change from state to state."""
        if self._info.rule is not None or self._environment is None:
            return text
        actions = self._environment.legal_actions()
        return f"{text}\n\nValid actions: {', '.join(actions)}" if actions else text
