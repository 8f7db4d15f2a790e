"""Which of a store's functions is tuned: `--train-function`, asked for where there are several."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from trajkit._settings import project
from trajkit.cli import output
from trajkit.cli.page import visible
from trajkit.errors import RequestError

function_option = click.option(
    "--train-function",
    metavar="NAME",
    help="Whose steps are learned; needed where the store has steps of several functions.",
)


def of_function(store: str | Path, wanted: str | None) -> tuple[Path, str | None]:
    """A store whose learned steps are of one function, and the function's name; one from earlier is used.

    Args:
        store: Where the steps are.
        wanted: The function; None where nobody said.

    Raises:
        RequestError: There are several, and nobody is here to ask; or there is none of this name.
    """
    from trajkit.curate.function import only_function
    from trajkit.store.dataset import open_dataset
    from trajkit.targets.origin import origin_of

    data = open_dataset(store)
    functions = origin_of(data).functions
    if wanted is None and len(functions) > 1:
        wanted = _asked(functions, data.store.path)
    if wanted is None or functions == (wanted,):
        return Path(store), wanted or (functions[0] if functions else None)
    goal = Path(project().stores) / f"{wanted}-{data.store.manifest.digest[:12]}"
    if not goal.exists():
        done = only_function(store, goal, wanted)
        n_steps = sum(each.n_steps for each in done.masked)
        output.talk(f"{goal}  {output.plural(n_steps, 'step')} of other functions are context only")
    return goal, wanted


def _asked(functions: tuple[str, ...], store: Path) -> str:
    names = ", ".join(map(visible, functions))
    if not (sys.stdin.isatty() and output.is_terminal()):
        raise RequestError(
            f"{store} has steps of {len(functions)} functions: which is tuned?",
            hint=f"--train-function NAME, of {names}",
        )
    answer: str = click.prompt("Which function is tuned?", type=click.Choice(functions), err=True)
    return answer


def of_functions(asked: dict[str, Any]) -> dict[str, Any]:
    """The options with `train` and `val` of one function."""
    from trajkit.cli.info import last_store

    train, function = of_function(asked["train"] or last_store(), asked["train_function"])
    chosen = asked | {"train": str(train)}
    if asked["val"] is not None:
        chosen["val"] = str(of_function(asked["val"], function)[0])
    return chosen
