"""`trajkit mask`: keep steps in the context that are not worth learning."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trajkit._core.console import Cell, count, plural, table, talk

if TYPE_CHECKING:
    from trajkit.curation.mask import MaskReport

_REASONS = ("copied", "after-success", "truncated", "unparsed", "invalid", "no-op", "loop", "cached")

_EPILOG = """\
A step for which several reasons hold is counted under the first of them in the order above.

\b
copied         copied from another episode as context
after-success  a step before it ended a successful episode, or --success held from one on
truncated      the answer was cut off by the limit of tokens
unparsed       the answer names no action
invalid        the answer names no action of the environment
no-op          the observation after it is the one before it, and it earned nothing
loop           the same action was done earlier in the episode at the same observation
cached         from the gateway's cache, and the same answer to the same prompt is learned elsewhere

What the agent sees may look alike where the world is not: a no-op or a loop is one as far as the text goes. A
step that lacks what a reason needs stays, and is counted as not judged. So are tool calls of a conversation
as no-ops: a tool may well answer the same twice.
"""


@click.command(epilog=_EPILOG)
@click.argument("store", required=False)
@click.option(
    "--reason",
    "reasons",
    multiple=True,
    type=click.Choice(_REASONS),
    help="Mask for this reason; may be repeated. None is on by itself.",
)
@click.option(
    "--success",
    metavar="RULE",
    help="For after-success: when it is certain, as in 'episode_return >= 1' (the rewards so far).",
)
@click.option("-o", "--output", "goal", type=click.Path(path_type=Path), help="The store to write.")
@click.option("--dry-run", is_flag=True, help="Print the tally and write nothing; without --reason, of each.")
@click.option("--json", "as_json", is_flag=True, help="Print the tally as JSON.")
def mask(
    store: str | None,
    reasons: tuple[str, ...],
    success: str | None,
    goal: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Keep steps of STORE as context only: their answers stay in later prompts and are not learned.

    Without STORE, of the last store that was written here.

    \b
    trajkit mask stores/goto --reason invalid --reason loop
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.cli.derived import print_derived
    from trajkit.commands.place import goal_of, last_store
    from trajkit.curation.mask import mask as mask_store

    if dry_run and not reasons:
        reasons = _REASONS
    goal = None if dry_run else goal_of("mask", goal)
    made = mask_store(store or last_store(talk), goal, reasons=reasons, success=success)
    if not as_json:
        _print(made.report)
    print_derived(
        made.entry, made.manifest, goal, as_json=as_json, more={"report": made.report.model_dump(mode="json")}
    )


def _print(report: MaskReport) -> None:
    numbers = [Cell(heading, is_number=True) for heading in ("masked", "it holds for", "not judged")]
    table(
        [Cell("reason"), *numbers],
        [
            (each.reason, count(each.n_masked), count(each.n_matched), count(each.n_unjudged))
            for each in report.reasons
        ],
    )
    tokens = "" if report.n_tokens is None else f", {plural(report.n_tokens, 'token')} of answers"
    talk(f"learned: {count(report.n_learned)} of {plural(report.n_learned_before, 'step')}{tokens}")
