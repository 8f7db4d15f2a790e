"""Run a recipe from Python: its steps are commands, and so it stands where the commands are."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trajkit.commands.place import Place, Settings, texts
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.commands.recipe.runner import Report


def run(
    recipe: str | Path,
    *,
    output: Place,
    set: Settings | None = None,
    dry_run: bool = False,
    yes: bool = False,
) -> Report:
    """Run a recipe; what is done is not done again. What its steps print goes to stderr.

    Args:
        recipe: A YAML file, or one that comes with trajkit, such as `babyai_local_sft`.
        output: The run folder.
        set: Options of steps, by `STEP.OPTION`.
        dry_run: Check every step, and run none.
        yes: Run it, and tell steps that would ask that it is fine.

    Returns:
        What became of each step; how one failed is told, not raised. After a dry run there are none.

    Raises:
        RequestError: The recipe is wrong, another one ran in `output`, or `yes` is not given.
    """
    from trajkit.cli.verbs import CommandVerbs
    from trajkit.commands.recipe.folder import RunFolder
    from trajkit.commands.recipe.load import load
    from trajkit.commands.recipe.runner import Report, check_same, states
    from trajkit.commands.recipe.runner import run as run_steps
    from trajkit.commands.recipe.steps import plan

    loaded, folder, verbs = load(str(recipe), texts(set)), RunFolder(Path(output)), CommandVerbs()
    steps = plan(loaded, verbs, Path(output))
    check_same(loaded, folder)
    if dry_run:
        return Report((), None)
    if not yes and any(status != "done" for status in states(steps, folder).values()):
        raise RequestError(
            f"this runs {len(steps)} steps in {folder.path}", hint="--yes runs them, --dry-run checks them"
        )
    with contextlib.redirect_stdout(sys.stderr):
        return run_steps(loaded, steps, verbs, folder, agreed=yes)
