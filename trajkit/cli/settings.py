"""Options that are given as NAME=VALUE, any number of times."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import click

from trajkit.errors import RequestError


def settings_option(flag: str, name: str, text: str) -> Callable[[Any], Any]:
    """An option whose value is a dictionary of what was given, empty without any.

    Args:
        flag: As it is typed, such as `--env-set`.
        name: The command's parameter.
        text: Its help.
    """

    def read(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
        from trajkit.environments.settings import typed

        return typed(given, option=flag)

    return click.option(flag, name, multiple=True, metavar="NAME=VALUE", callback=read, help=text)


def nested(
    settings: Mapping[str, str], given: Mapping[str, Any] | None = None, *, read: Callable[[str], Any]
) -> dict[str, Any]:
    """What `--set` says, put over what other options gave: `a.b=c` is the field b of a.

    Args:
        settings: Paths to what was typed.
        given: Fields that are there already; it is left as it is.
        read: Makes a value of what was typed.

    Raises:
        RequestError: A path leads through something that has no fields.
    """
    found = copy.deepcopy(dict(given or {}))
    for path, text in settings.items():
        *groups, last = path.split(".")
        place: Any = found
        for n_names, name in enumerate(groups, start=1):
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise RequestError(
                    f"--set {path}: {'.'.join(groups[:n_names])} is no group", hint="such as lora.r=8"
                )
        place[last] = read(text)
    return found


env_set = settings_option("--env-set", "env_settings", "A setting of the environment; may be repeated.")
"""The settings of an environment, as `env_settings`."""
