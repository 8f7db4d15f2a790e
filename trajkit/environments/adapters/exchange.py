"""Play an episode as an exchange of texts between a model and a world, also as a tool for TRL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from trajkit.environments.base import Environment, EnvironmentInfo
from trajkit.errors import RequestError

OVER = "The episode is over."
"""The end of the last observation."""


def known_tasks(info: EnvironmentInfo, tasks: Sequence[str] | None) -> tuple[str, ...]:
    """Return the named tasks, or all tasks of the environment.

    Raises:
        RequestError: There is no such task.
    """
    for task in tasks or ():
        if task not in info.tasks:
            raise RequestError(f"no task {task!r} in {info.env_id}", hint=f"tasks: {', '.join(info.tasks)}")
    return info.tasks if tasks is None else tuple(tasks)


class Exchange:
    """Plays one episode after the other, with one environment per task."""

    def __init__(self, info: EnvironmentInfo) -> None:
        self._info = info
        self._made: dict[str, Environment] = {}
        self._environment: Environment | None = None
        self.total_reward = 0.0
        """Sum of the rewards of the episode so far."""
        self.is_over = True
        """Whether the episode was terminated or truncated, or none was started."""

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
        """Execute an action; None for an answer without an action. After the end, nothing is executed.

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
        """Return the environment's scores of the episode so far."""
        return {} if self._environment is None else self._environment.statistics()

    def close(self) -> None:
        """Close the environments. A later `begin` creates new ones."""
        for environment in self._made.values():
            environment.close()
        self._made.clear()
        self._environment, self.is_over = None, True

    def _with_actions(self, text: str) -> str:
        """Append the legal actions, if they depend on the state."""
        if self._info.rule is not None or self._environment is None:
            return text
        actions = self._environment.legal_actions()
        return f"{text}\n\nValid actions: {', '.join(actions)}" if actions else text


def tool_class(info: EnvironmentInfo) -> type[Any]:
    """Return a class that TRL creates, resets and queries for the reward; its name is the environment's.

    TRL offers every public method of the class except for `reset` and `get_reward` to the model as a tool,
    described by its annotations and its docstring.
    """

    class Tool:
        def __init__(self) -> None:
            self._exchange = Exchange(info)

        def reset(self, **row: Any) -> str:
            """Begin the world that a row of the dataset names by `task` and `seed`."""
            seed, task = row.get("seed"), row.get("task", info.tasks[0])
            if seed is None:
                raise RequestError(
                    "a row of the dataset has no seed", hint="trl_rows makes rows with task and seed"
                )
            if (env_id := row.get("environment", info.env_id)) != info.env_id:
                raise RequestError(
                    f"a row of the dataset is for the environment {env_id}, not {info.env_id}",
                    hint="one factory each: environment_factory={name: trl_factory(name) for name in ...}",
                )
            return self._exchange.begin(task, int(seed))

        def act(self, action: str) -> str:
            """Carry out one action.

            Args:
                action: The action.

            Returns:
                What you see now.
            """
            return self._exchange.act(action)

        def get_reward(self) -> float:
            """The sum of the rewards so far."""
            return self._exchange.total_reward

    if info.rule is not None:
        Tool.act.__annotations__ = {"action": Literal[info.rule.actions], "return": str}
    else:
        Tool.act.__annotations__ = {"action": str, "return": str}
    Tool.__name__ = Tool.__qualname__ = re.sub(r"\W+", "_", info.env_id).strip("_")
    return Tool
