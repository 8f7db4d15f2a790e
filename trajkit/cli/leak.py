"""`trajkit leak`: whether what is learned and what measures have anything in common."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from trajkit._core import console

_EPILOG = """\
A shared episode id, world (environment, task and seed) or initial state is a leak, and so is an episode of a
world that trajkit.toml reserves. A shared text (prompt, prompt with its answer, mission with first
observation; case, spaces and punctuation do not count) is one where a side has no seeds, and so is a prompt
that shares nearly all its runs of five words with another. Where both have seeds, text that reads the same is
counted: small worlds do read alike. A leak makes the exit code 1, unless --drop leaves it out of one side.
"""


@click.command(epilog=_EPILOG)
@click.argument("train", metavar="TRAIN")
@click.argument("evaluation", metavar="EVAL", required=False)
@click.option("--strict-text", is_flag=True, help="Shared text is a leak even where both have seeds.")
@click.option(
    "--near",
    type=float,
    default=0.9,
    show_default=True,
    help="Share of its runs of words from which on a prompt is near-identical to another.",
)
@click.option(
    "--drop", type=click.Choice(["train", "eval"]), help="Write this side without the episodes that leak."
)
@click.option("-o", "--output", "goal", type=click.Path(path_type=Path), help="With --drop: the new store.")
@click.option("--dry-run", is_flag=True, help="With --drop: print the tally and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def leak(
    train: str,
    evaluation: str | None,
    strict_text: bool,
    near: float,
    drop: Literal["train", "eval"] | None,
    goal: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Look for what the stores TRAIN and EVAL have in common; without EVAL, for reserved worlds only.

    \b
    trajkit leak stores/train stores/val
    trajkit leak stores/train stores/val --drop eval -o stores/clean
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.cli.derived import print_derived
    from trajkit.commands.checks import cleaned, refuse_nothing
    from trajkit.curation.leak import leak as find_leaks

    refuse_nothing(train, evaluation)
    if drop is not None or goal is not None or dry_run:
        made = cleaned(train, evaluation, drop, goal, dry_run=dry_run, strict_text=strict_text, near=near)
        print_derived(made.entry, made.manifest, made.path, as_json=as_json)
        return
    report = find_leaks(train, evaluation, strict_text=strict_text, near=near)
    for line in report.unchecked():
        console.talk(line)
    if as_json:
        console.result_json({"leaks": report.leaks, **report.model_dump(mode="json")})
    else:
        for line in report.lines():
            console.result(line)
    report.checked()
