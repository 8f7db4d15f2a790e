"""An environment of trajkit as the class that TRL's `environment_factory` makes."""

from __future__ import annotations

import re
from typing import Any, Literal

from trajkit.environments.adapters.exchange import Exchange
from trajkit.environments.base import EnvironmentInfo
from trajkit.errors import RequestError


def tool_class(info: EnvironmentInfo) -> type[Any]:
    """A class whose instances TRL resets, calls and asks for the reward; its name is the environment's.

    TRL offers every public method of the class but `reset` and `get_reward` to the model as a tool, by its
    annotations and its docstring.
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
                    f"a row of the dataset is of the environment {env_id}, and {info.env_id} is played",
                    hint="a factory for each: environment_factory={name: trl_factory(name) for name in ...}",
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
