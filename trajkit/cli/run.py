"""`trajkit run`: a recipe, step by step."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trajkit._core import console
from trajkit.cli.command import named_values
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.commands.recipe.folder import RunFolder, StepStatus
    from trajkit.commands.recipe.load import Loaded
    from trajkit.commands.recipe.runner import Report
    from trajkit.commands.recipe.steps import PlannedStep

_EPILOG = """\
A recipe is a YAML file with steps; each step is a command with its options, and `${NAME}` is what an earlier
one left. The run folder keeps the recipe as it ran, what became of each step, and everything the steps leave.
The same command again goes on after a kill, a failure or Ctrl-C: what is done is not done again.
"""


def _list(ctx: click.Context, parameter: click.Parameter, is_on: bool) -> None:
    """Print the recipes that come with trajkit, and end."""
    from trajkit.commands.recipe.load import load, packaged

    if not is_on or ctx.resilient_parsing:
        return
    recipes = [load(name, {}).recipe for name in packaged()]
    rows = [(each.name, str(len(each.steps)), " ".join((each.minutes or "").split())) for each in recipes]
    columns = (console.Cell("recipe"), console.Cell("steps", is_number=True), console.Cell("minutes"))
    console.table(columns, rows)
    ctx.exit()


@click.command(epilog=_EPILOG)
@click.argument("recipe")
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list,
    help="List the recipes that come with trajkit, and end.",
)
@click.option(
    "-o", "--output", "goal", required=True, type=click.Path(path_type=Path), help="The run folder."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _, parameter, typed: named_values(parameter, typed),
    help="An option of a step, as STEP.OPTION=VALUE; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and run nothing.")
@click.option("--yes", is_flag=True, help="Do not ask, and tell steps that would ask that it is fine.")
@click.option("--json", "as_json", is_flag=True, help="Print what became of each step as one JSON document.")
@click.pass_context
def run(
    ctx: click.Context,
    recipe: str,
    goal: Path,
    settings: dict[str, str],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Run RECIPE: a YAML file, or one that comes with trajkit, such as babyai_local_sft.

    \b
    trajkit run babyai_local_sft -o run --set tuned.num_train_epochs=1
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.cli.verbs import CommandVerbs
    from trajkit.commands.recipe.folder import RunFolder
    from trajkit.commands.recipe.load import load
    from trajkit.commands.recipe.runner import check_same, states
    from trajkit.commands.recipe.runner import run as run_steps
    from trajkit.commands.recipe.steps import plan

    loaded, folder = load(recipe, settings), RunFolder(goal)
    verbs = CommandVerbs(debug=bool(ctx.obj and ctx.obj["debug"]))
    steps = plan(loaded, verbs, goal)
    check_same(loaded, folder)
    before = states(steps, folder)
    for line in _plan(loaded, steps, before, goal):
        console.talk(line)
    if dry_run:
        console.talk("dry run: nothing was run")
        return 0
    if any(status != "done" for status in before.values()):
        _confirm(yes=yes)
    started = time.monotonic()
    again = _command(recipe, goal, settings)
    try:
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
            report = run_steps(loaded, steps, verbs, folder, agreed=yes, on_step=_Teller(len(steps)))
    except KeyboardInterrupt:
        console.talk(f"`{again}` goes on from here")
        raise
    return _print(report, folder, again, time.monotonic() - started, as_json=as_json)


def _plan(
    loaded: Loaded, steps: Sequence[PlannedStep], before: dict[str, StepStatus | None], goal: Path
) -> Iterator[str]:
    recipe = loaded.recipe
    yield f"{recipe.name}  {console.plural(len(steps), 'step')} in {goal}  ({loaded.located.path})"
    facts = {"needs": recipe.needs, "minutes": recipe.minutes, "cost": recipe.cost, "leaves": recipe.leaves}
    for name, text in facts.items():
        if text is not None:
            yield f"{name:9} {' '.join(text.split())}"
    for name, source in recipe.files.items():
        yield f"copied    {source} as {goal / name}"
    width = max(len(step.name) for step in steps)
    for number, step in enumerate(steps, start=1):
        status = before[step.name]
        yield f"{number:>2}  {step.name:{width}}  {status or 'to do':7}  {_typed(step)}"
        margin = " " * (width + 6)
        if step.outside is not None:
            yield f"{margin}outside of {goal}: {step.outside}"
        if step.asks:
            yield f"{margin}shows its own plan and asks again, unless --yes was given"


def _typed(step: PlannedStep) -> str:
    return _joined(["trajkit", *step.verb.name.split(), *step.arguments])


def _command(recipe: str, goal: Path, settings: dict[str, str]) -> str:
    """What goes on with this run."""
    changes = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return _joined(["trajkit", "run", recipe, "-o", str(goal), *changes])


def _joined(words: Sequence[str]) -> str:
    """Words as a shell takes them; conditions, which are full of single quotes, in double ones."""
    has_special = re.compile(r'["$`\\!\n]').search
    return " ".join(
        f'"{word}"' if "'" in word and not has_special(word) else shlex.quote(word) for word in words
    )


class _Teller:
    """Says which step comes.

    Args:
        n_steps: How many there are.
    """

    def __init__(self, n_steps: int) -> None:
        self._n_steps = n_steps

    def __call__(self, number: int, step: PlannedStep, is_done: bool) -> None:
        """Say it."""
        what = "is done" if is_done else _typed(step)
        console.talk(f"[{number}/{self._n_steps}] {step.name}: {what}")


def _confirm(*, yes: bool) -> None:
    if yes:
        return
    if not (sys.stdin.isatty() and console.is_terminal()):
        raise RequestError("nobody is here to ask", hint="--yes runs it, --dry-run shows the plan alone")
    if not click.confirm("Run?", err=True):
        console.talk("nothing was run")
        raise click.exceptions.Exit(1)


def _print(report: Report, folder: RunFolder, again: str, seconds: float, *, as_json: bool) -> int:
    failed = report.failed
    if as_json:
        records = [record.model_dump(mode="json") for record in report.records]
        console.result_json({"run": str(folder.path), "recipe": folder.facts().recipe, "steps": records})
    if failed is not None:
        hint = f"{failed.hint}; then `{again}` goes on there" if failed.hint else f"`{again}` goes on there"
        console.error_line(f"step {failed.name} failed: {failed.error}", hint=hint)
        return failed.exit_code or 1
    if not as_json:
        console.result(f"{folder.path}  {console.plural(len(report.records), 'step')} done  {seconds:.0f} s")
    return 0
