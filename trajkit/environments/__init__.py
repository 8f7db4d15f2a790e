"""Text worlds with seeds: one protocol, one file per environment, and the list of them."""

from __future__ import annotations

from trajkit.environments import babyai
from trajkit.environments.base import Environment, EnvironmentInfo
from trajkit.errors import RequestError

_KNOWN = {info.env_id: info for info in (babyai.INFO,)}


def known() -> tuple[str, ...]:
    """Names of the environments that trajkit can play."""
    return tuple(_KNOWN)


def environment_info(env_id: str) -> EnvironmentInfo:
    """What is known of an environment; its package need not be installed.

    Raises:
        RequestError: There is no such environment.
    """
    info = _KNOWN.get(env_id)
    if info is None:
        raise RequestError(f"no environment {env_id!r}", hint=f"known: {', '.join(known())}")
    return info


def make(env_id: str, task: str) -> Environment:
    """Make an environment for one task.

    Raises:
        RequestError: There is no such environment, or no such task in it.
        MissingExtra: The environment's package is not installed.
    """
    return environment_info(env_id).make(task)
