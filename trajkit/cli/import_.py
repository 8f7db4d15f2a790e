"""`trajkit import`: a store from files that other tools wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trajkit._core.console import Meter, count, plural, result, result_json, talk
from trajkit._core.settings import remember
from trajkit.cli.derived import print_entry
from trajkit.commands.place import goal_of

if TYPE_CHECKING:
    from trajkit.sources.files.importing import Imported

_EPILOG = """\
Formats: atif (Harbor's trajectories, 1.0 to 1.8), adp (Agent Data Protocol), sts (session traces of the
Hugging Face Hub), sharegpt, openai-chat, hf-messages and alpaca (conversations, as JSON lines or Parquet),
preference (chosen and rejected answers: two episodes a row, of which `trajkit pairs --match prompt --score
preferred --margin 1` makes pairs), inspect (logs, .eval and .json), balrog, harbor and benchflow (folders of
results), or module:NAME of your own.
"""


@click.command(name="import", epilog=_EPILOG)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--from", "from_", metavar="FORMAT", help="What PATH holds.  [default: what it looks like]")
@click.option("--skip-bad", is_flag=True, help="Leave out what cannot be read, and count it.")
@click.option(
    "--include-errored", is_flag=True, help="Take trials that ended in an error, too; they are set aside."
)
@click.option(
    "--success",
    metavar="RULE",
    help="When an episode is a success, as in 'reward >= 0.5'.  [default: what the format says]",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME=PLACE",
    help="A metric of each episode, from what a document says beside its messages: reward=columns.reward.",
)
@click.option("--task", metavar="PLACE", help="Where a document says its task, such as columns.task.")
@click.option(
    "--purpose",
    type=click.Choice(["train", "eval", "unknown"]),
    help="What the episodes were played for.  [default: what the files say]",
)
@click.option("-o", "--output", "goal", type=click.Path(path_type=Path), help="The store to write.")
@click.option("--json", "as_json", is_flag=True, help="Print the tally as JSON.")
def import_(
    path: Path,
    from_: str | None,
    skip_bad: bool,
    include_errored: bool,
    success: str | None,
    metrics: tuple[str, ...],
    task: str | None,
    purpose: str | None,
    goal: Path | None,
    as_json: bool,
) -> None:
    """Bring in files that other tools wrote: PATH is a file or a folder.

    A document that makes no sense is named with its place, and ends the import; with --skip-bad it is left
    out and counted.
    """
    from trajkit.schema import Purpose
    from trajkit.schema.success import parse_success
    from trajkit.sources.files.importing import Wish, import_files

    goal = goal_of("import", goal)
    wish = Wish(
        format=from_,
        skip_bad=skip_bad,
        include_errored=include_errored,
        success=success,
        purpose=None if purpose is None else Purpose(purpose),
        metrics=dict(_named(text) for text in metrics),
        task=task,
    )
    rule = None if success is None else parse_success(success)
    with Meter() as meter:
        imported, entry = import_files(path, goal, wish, success=rule, on_progress=meter.show)
    remember("last_store", {"path": str(goal.absolute())})
    if as_json:
        result_json(imported.model_dump(mode="json"))
        return
    _talk(imported)
    print_entry(entry)
    kept = f"{plural(imported.n_episodes, 'episode')}  {plural(imported.n_steps, 'step')}"
    result(f"{goal}  {kept}  digest {imported.digest[:12]}")


def _named(text: str) -> tuple[str, str]:
    """A metric and its place; `columns.reward` alone is named by its last part."""
    name, equals, place = text.partition("=")
    name = name if equals else text.rpartition(".")[2]
    if not name or not (place or text):
        raise click.BadParameter(f"{text!r} is not NAME=PLACE", param_hint="--metric")
    return name, place or text


def _talk(imported: Imported) -> None:
    exact = f", {count(imported.n_exact)} of them written by trajkit" if imported.n_exact else ""
    talk(f"read {imported.path} as {imported.format}: {plural(imported.n_documents, 'document')}{exact}")
    for suffix, number in imported.unread.items():
        talk(f"not looked at: {plural(number, 'file')} with the suffix {suffix}")
    if imported.format == "preference":
        talk(f"pairs of them: trajkit pairs {imported.store} --match prompt --score preferred --margin 1")
    for problem in imported.problems:
        talk(f"left out: {problem}")
