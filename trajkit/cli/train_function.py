"""Which of a store's functions is tuned: `--train-function`, asked for where there are several."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._core import console

if TYPE_CHECKING:
    from trajkit.commands.sides import OfOneFunction

function_option = click.option(
    "--train-function",
    metavar="NAME",
    help="Whose steps are learned; needed where the store has steps of several functions.",
)


def _asked(functions: tuple[str, ...], store: Path) -> str:
    from trajkit.commands.sides import which_function

    if not (sys.stdin.isatty() and console.is_terminal()):
        return which_function(functions, store)
    answer: str = click.prompt("Which function is tuned?", type=click.Choice(functions), err=True)
    return answer


def one_function(asked: Mapping[str, Any]) -> OfOneFunction:
    """That the steps of one function are learned: the one that was named, or that somebody chooses."""
    from trajkit.commands.sides import OfOneFunction

    return OfOneFunction(asked["train_function"], _asked)
