"""Which of a store's functions is tuned: `--train-function`, asked for where there are several."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from trajkit.cli import output

function_option = click.option(
    "--train-function",
    metavar="NAME",
    help="Whose steps are learned; needed where the store has steps of several functions.",
)


def _asked(functions: tuple[str, ...], store: Path) -> str:
    from trajkit.verbs.sides import which_function

    if not (sys.stdin.isatty() and output.is_terminal()):
        return which_function(functions, store)
    answer: str = click.prompt("Which function is tuned?", type=click.Choice(functions), err=True)
    return answer


def of_functions(asked: dict[str, Any]) -> dict[str, Any]:
    """The options with `train` and `val` of one function."""
    from trajkit.verbs.place import last_store
    from trajkit.verbs.sides import of_function

    train, function = of_function(
        asked["train"] or last_store(), asked["train_function"], choose=_asked, say=output.talk
    )
    chosen = asked | {"train": str(train)}
    if asked["val"] is not None:
        chosen["val"] = str(of_function(asked["val"], function, choose=_asked, say=output.talk).store)
    return chosen
