"""Adapters of trajkit's environments to other libraries: Gymnasium, TRL, and verifiers.

Each plays the same worlds: the same seed and the same actions give the same rewards. verifiers requires an
older openai than trajkit is tested with, so it needs its own Python environment. Its adapter is the module
`trajkit.environments.adapters.verifiers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trajkit._core.lazy import need
from trajkit.environments import NO_SETTINGS, typed_environment
from trajkit.formats.base import Start
from trajkit.formats.trl import PLAY, start_row

if TYPE_CHECKING:
    import gymnasium

__all__ = ["gymnasium_env", "trl_factory", "trl_rows"]


def gymnasium_env(
    env_id: str, task: str | None = None, settings: Mapping[str, str] = NO_SETTINGS
) -> gymnasium.Env[str, str]:
    """Make a Gymnasium environment whose observations and actions are text.

    `reset(seed=N)` begins the world of seed N; without a seed the world is drawn from the environment's own
    random numbers. The info of a reset holds `mission` and `initial_state_hash`, that of a step
    `action_executed` and `action_valid`, and both the environment's statistics. `env.unwrapped` has
    `mission`, `world` (the seed) and `legal_actions()`, and `expert_action()` if there is an expert.

    Args:
        env_id: A known name such as `babyai`, or `my_pkg.env:MyEnv`. It runs code: never take it from data.
        task: One of its tasks. Default: the first.
        settings: Settings of the environment, as texts.

    Raises:
        RequestError: There is no such environment, task or setting.
        MissingExtra: Gymnasium or the environment's package is not installed.

    Example:
        >>> env = gymnasium_env("babyai", "goto")
        >>> observation, info = env.reset(seed=7)
        >>> observation, reward, terminated, truncated, info = env.step("go forward")
    """
    need("gymnasium", extra="gymnasium")
    from trajkit.environments.adapters.gymnasium import TextEnv

    info = typed_environment(env_id, settings)
    return TextEnv(info.make(info.tasks[0] if task is None else task), info.rule)


def trl_factory(env_id: str, settings: Mapping[str, str] = NO_SETTINGS) -> Callable[[], Any]:
    """Make an `environment_factory` for TRL's GRPOTrainer, which gives the model one tool, `act(action)`.

    A row of the dataset names the world by `task` and `seed`, so that the attempts of a group begin alike:
    `trl_rows` makes rows, and `trajkit convert --to trl-grpo` those of a store. `reset` gives mission and
    first observation, which TRL appends to the prompt; `act` gives the next observation, and `get_reward` the
    sum of the rewards. TRL logs it under the environment's name.

    Args:
        env_id: A known name such as `babyai`, or `my_pkg.env:MyEnv`. It runs code: never take it from data.
        settings: Settings of the environment, as texts.

    Raises:
        RequestError: There is no such environment or setting.

    Example:
        >>> trainer = GRPOTrainer(
        ...     model="Qwen/Qwen3-0.6B",
        ...     train_dataset=Dataset.from_list(trl_rows("babyai", range(1000), tasks=["goto"])),
        ...     environment_factory=trl_factory("babyai"),
        ... )
    """
    from trajkit.environments.adapters.exchange import tool_class

    return tool_class(typed_environment(env_id, settings))


def trl_rows(
    env_id: str,
    seeds: Iterable[int],
    *,
    tasks: Sequence[str] | None = None,
    prompt: str = PLAY,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> list[dict[str, Any]]:
    """Return dataset rows for `trl_factory`: `prompt`, `environment`, `task` and `seed`, one per world.

    Args:
        env_id: As for `trl_factory`.
        seeds: The worlds. Use different ones for training and evaluation.
        tasks: Default: all of the environment.
        prompt: Text to which the mission and the first observation are appended.
        settings: Settings of the environment, as texts.

    Raises:
        RequestError: There is no such environment, task or setting.
    """
    from trajkit.environments.adapters.exchange import known_tasks

    info = typed_environment(env_id, settings)
    chosen = known_tasks(info, tasks)
    return [start_row(Start(info.env_id, task, seed), prompt) for seed in seeds for task in chosen]
