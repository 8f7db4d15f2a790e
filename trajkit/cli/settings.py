"""Options that are given as NAME=VALUE, any number of times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


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


env_set = settings_option("--env-set", "env_settings", "A setting of the environment; may be repeated.")
"""The settings of an environment, as `env_settings`."""
