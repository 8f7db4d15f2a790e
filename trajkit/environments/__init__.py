"""Text environments with seeds: the protocol, the built-in environments, and environments of the user.

A name that comes from data can only name a built-in environment and imports nothing. Only a name that the
user typed is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trajkit.environments import babyai, textworld
from trajkit.environments.base import Environment, EnvironmentInfo
from trajkit.environments.load import load, with_settings
from trajkit.environments.settings import nearest
from trajkit.errors import RequestError

__all__ = [
    "NO_SETTINGS",
    "adapters",
    "babyai",
    "babyai_level",
    "base",
    "contract",
    "environment_info",
    "guard",
    "known",
    "load",
    "make",
    "module",
    "quiet",
    "settings",
    "textworld",
    "typed_environment",
]

_KNOWN = {info.env_id: info for info in (babyai.INFO, textworld.INFO)}
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
"""An environment as it is by default."""


def known() -> tuple[str, ...]:
    """Names of the built-in environments."""
    return tuple(_KNOWN)


def environment_info(env_id: str, settings: Mapping[str, str] = NO_SETTINGS) -> EnvironmentInfo:
    """Describe a built-in environment. Its package need not be installed.

    Args:
        env_id: A known name.
        settings: Raw texts, converted to the types of the environment's parameters.

    Raises:
        RequestError: There is no such environment, or it does not have one of the settings.
    """
    info = _KNOWN.get(env_id)
    if info is None:
        hint = f"{nearest(env_id, known())}; one of your own is written my_pkg.env:MyEnv"
        raise RequestError(f"trajkit has no environment {env_id!r}", hint=hint)
    return with_settings(info, settings, of=env_id)


def typed_environment(spec: str, settings: Mapping[str, str] = NO_SETTINGS) -> EnvironmentInfo:
    """Describe an environment that the user typed. This imports code: never call it with a name from data.

    Args:
        spec: A built-in name; `my_pkg.env:MyEnv` for your own, importable from the working folder; or
            `gym:Maze-v0` for an environment that is registered with Gymnasium.
        settings: Raw texts of `--env-set`, converted to the types of the environment's parameters.

    Raises:
        RequestError: There is no such environment, or it does not have one of the settings.
        MissingExtra: Gymnasium is not installed.
    """
    if ":" in spec:
        return load(spec, settings, taken=known())
    return environment_info(spec, settings)


def make(env_id: str, task: str, settings: Mapping[str, str] = NO_SETTINGS) -> Environment:
    """Make an environment for one task, named as in `typed_environment`.

    Raises:
        RequestError: There is no such environment or task, or the environment does not have a setting.
        MissingExtra: The environment's package is not installed.
        RolloutError: The user's environment cannot be created.
    """
    return typed_environment(env_id, settings).make(task)
