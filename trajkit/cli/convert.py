"""`trajkit convert`: a training file from a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trajkit.cli import output
from trajkit.cli.info import last_store
from trajkit.cli.page import visible

if TYPE_CHECKING:
    from trajkit.convert.file import Conversion


@click.command()
@click.argument("store", required=False)
@click.option("--to", required=True, metavar="FORMAT", help="What to write: openai-sft.")
@click.option(
    "-o", "--output", "goal", type=click.Path(path_type=Path), required=True, help="The file to write."
)
@click.option(
    "--where", metavar="SQL", help="Only the episodes for which this is true, as in episode_return >= 0.7."
)
@click.option(
    "--include-eval", is_flag=True, help="Train on evaluation episodes too; what they measure is then void."
)
@click.option("--strict", is_flag=True, help="Fail when the format cannot carry all that a step says.")
@click.option("--skip-bad", is_flag=True, help="Leave out rows that would be refused, instead of failing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def convert(
    store: str | None,
    to: str,
    goal: Path,
    where: str | None,
    include_eval: bool,
    strict: bool,
    skip_bad: bool,
    as_json: bool,
) -> None:
    """Write a training file from STORE; without one, from the last store that was written here.

    One line per step that is learned, with the prompt that the model saw and what it answered. The steps that
    are not learned, and what the format cannot carry, are counted on stderr.
    """
    from trajkit.convert.file import convert as convert_dataset
    from trajkit.store.dataset import open_dataset

    if str(goal) == "-":
        raise click.UsageError("-o is a file: it exists only when every row has been checked")
    dataset = open_dataset(store or last_store())
    made = convert_dataset(
        dataset.where(where) if where else dataset,
        goal,
        to=to,
        include_eval=include_eval,
        strict=strict,
        skip_bad=skip_bad,
    )
    _talk(made)
    if as_json:
        output.result_json(made.model_dump(mode="json"))
    else:
        output.result(f"{made.path}  {output.plural(made.n_rows, 'line')}  {output.size(made.n_bytes)}")


def _talk(made: Conversion) -> None:
    from trajkit.convert.file import counted

    for reason, n_steps in made.left.items():
        output.talk(f"not learned: {output.plural(n_steps, 'step')}: {visible(reason)}")
    if made.losses:
        output.talk(f"left out: {counted(made.losses)} ({made.format} cannot carry them)")
    for warning in made.warnings:
        output.talk(f"warning: {warning}")
