"""Run a recipe, step by step."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trajkit._core.output import console
from trajkit._core.output.console import plural, talk
from trajkit.commands.options.types import Option, Place, Settings
from trajkit.commands.place import texts

if TYPE_CHECKING:
    from trajkit.commands.recipe.folder import StepStatus
    from trajkit.commands.recipe.load import Loaded
    from trajkit.commands.recipe.runner import Report
    from trajkit.commands.recipe.steps import PlannedStep


def _recipes() -> str:
    """The recipes that come with trajkit, as a table."""
    from trajkit.commands.recipe.load import load, packaged

    recipes = [load(name).recipe for name in packaged()]
    rows = [(each.name, str(len(each.steps)), " ".join((each.minutes or "").split())) for each in recipes]
    columns = (console.Cell("recipe"), console.Cell("steps", is_number=True), console.Cell("minutes"))
    return console.table_text(columns, rows)


def run(
    recipe: Annotated[Place, Option(listing=_recipes)],
    *,
    output: Annotated[
        Place,
        Option(
            short="-o",
            metavar="PATH",
            is_local_because="a run continues in its folder; `trajkit select PATH/STORE -o ADDRESS` copies",
        ),
    ],
    set: Settings | None = None,
    dry_run: bool = False,
    yes: bool = False,
) -> Report:
    """Run RECIPE: a YAML file, or one that comes with trajkit, such as babyai_local_sft.

    A recipe is a YAML file with steps; each step is a command with its options, and `${NAME}` is the output
    of an earlier one. The run folder keeps the recipe as it ran, the outcome of each step, and everything the
    steps write. The same command again resumes after a kill, a failure or Ctrl-C: finished steps are not
    repeated. In Python the failure of a step is in the report, not raised, and what steps print goes to
    stderr.

    Args:
        recipe: A YAML file, or a name.
        output: The run folder.
        set: Change an option of a step, as STEP.OPTION=VALUE; may be repeated.
        dry_run: Print the plan, check every step, and run none.
        yes: Skip the confirmation, also in the steps.

    Raises:
        RequestError: The recipe is wrong, another one ran in `output`, or `yes` is not given and no question
            can be asked.

    Example:
        trajkit run babyai_local_sft -o run --set tuned.num_train_epochs=1
    """
    from trajkit.commands.recipe.folder import RunFolder
    from trajkit.commands.recipe.load import load
    from trajkit.commands.recipe.runner import Report, check_same, states
    from trajkit.commands.recipe.runner import run as run_steps
    from trajkit.commands.recipe.steps import plan

    loaded, goal = load(str(recipe), texts(set)), Path(output)
    folder, steps = RunFolder(goal), plan(loaded, goal)
    check_same(loaded, folder)
    before = states(steps, folder)
    for line in _plan(loaded, steps, before, goal):
        talk(line)
    if dry_run:
        talk("dry run: nothing was run")
        return Report(folder=goal, recipe=loaded.recipe.name)
    if any(status != "done" for status in before.values()):
        unasked = f"this runs {plural(len(steps), 'step')} in {goal}, and there is no terminal to ask on"
        console.confirm("Run?", yes=yes, verb="runs it", refused="nothing was run", unasked=unasked)
    changes = [word for name, value in loaded.settings.items() for word in ("--set", f"{name}={value}")]
    again = _joined(["trajkit", "run", str(recipe), "-o", str(goal), *changes])

    def tell(number: int, step: PlannedStep, is_done: bool) -> None:
        talk(f"[{number}/{len(steps)}] {step.name}: {'is done' if is_done else _typed(step)}")

    started = time.monotonic()
    try:
        with contextlib.nullcontext() if console.is_open() else contextlib.redirect_stdout(sys.stderr):
            report = run_steps(loaded, steps, folder, agreed=yes, on_step=tell)
    except KeyboardInterrupt:
        talk(f"`{again}` continues from here")
        raise
    return replace(report, again=again, seconds=time.monotonic() - started)


def _plan(
    loaded: Loaded, steps: Sequence[PlannedStep], before: Mapping[str, StepStatus | None], goal: Path
) -> Iterator[str]:
    recipe = loaded.recipe
    yield f"{recipe.name}  {plural(len(steps), 'step')} in {goal}  ({loaded.located.path})"
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


def _joined(words: Sequence[str]) -> str:
    """Words as a shell takes them; conditions, which are full of single quotes, in double ones."""
    has_special = re.compile(r'["$`\\!\n]').search
    return " ".join(
        f'"{word}"' if "'" in word and not has_special(word) else shlex.quote(word) for word in words
    )
