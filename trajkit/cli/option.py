"""Options that several commands have, and how a group of them becomes one decorator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def adding(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """One decorator for several options, which help shows in the order given.

    Args:
        options: As `click.option` makes them, or other decorators of this kind.
    """

    def add(command: Command) -> Command:
        for option in reversed(options):  # click shows them as decorators stand: the last applied first
            command = option(command)
        return command

    return add


confidence_option = click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Of every interval.",
)
"""How sure the intervals are that a command tells, as `confidence`."""

runs_option = click.option(
    "--runs",
    "runs_folder",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="The folder where jobs are kept.",
)
"""Where jobs are, as `runs_folder`."""
