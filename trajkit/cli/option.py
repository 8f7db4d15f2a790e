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


thoughts_option = click.option(
    "--thoughts",
    type=click.Choice(["keep", "strip", "think-text"]),
    default="keep",
    show_default=True,
    help="What becomes of thoughts.",
)
"""What a row that is trained on has of thoughts, as `thoughts`."""

overlong_option = click.option(
    "--overlong",
    type=click.Choice(["error", "drop", "trim-history"]),
    default="error",
    show_default=True,
    help="What becomes of rows that are too long.",
)
"""The same of rows over the limit, as `overlong`."""

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
