"""`trajkit weight`: how much each step counts in training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._core.console import Cell, count, table, talk
from trajkit.cli.derived import columns_given

if TYPE_CHECKING:
    from trajkit.curation.spread import Spread
    from trajkit.curation.weight import WeightReport

_EPILOG = """\
\b
uniform       w = 1
return        w = R, the score of the episode
return-to-go  w = r_t + gamma r_(t+1) + gamma^2 r_(t+2) + …, the rewards from the step on
advantage     w = R - mean(R) of the group
exponential   w = min(exp((R - mean(R)) / temperature), clip), advantage-weighted regression

The effective sample size (Kish) says how many equal weights would vary as little: by steps, and by episodes,
whose steps are not independent. A weight of exactly 0 makes a step context only.
"""


@click.command(epilog=_EPILOG)
@click.argument("store", required=False)
@click.option(
    "--scheme",
    required=True,
    type=click.Choice(["uniform", "return", "return-to-go", "advantage", "exponential"]),
    help="How a weight comes from what an episode earned; see below.",
)
@click.option(
    "--score", metavar="NAME", help="The score R: a metric.  [default: episode_return, else total_reward]"
)
@click.option("--gamma", type=float, metavar="NUMBER", help="Of return-to-go: the discount, 1 for none.")
@click.option(
    "--baseline", type=click.Choice(["group", "task"]), help="What the mean is over.  [default: group]"
)
@click.option(
    "--by",
    multiple=True,
    callback=columns_given,
    metavar="COLUMNS",
    help="What makes a group.  [default: environment, task and seed]",
)
@click.option("--temperature", type=float, metavar="NUMBER", help="Of exponential.  [default: 1]")
@click.option(
    "--clip", type=float, metavar="NUMBER", help="Of exponential: the largest weight.  [default: 20]"
)
@click.option(
    "--normalize",
    type=click.Choice(["none", "task", "all"]),
    help="Divide by the mean size of the weights of each task, or of all.  [default: none]",
)
@click.option("-o", "--output", "goal", type=click.Path(path_type=Path), help="The store to write.")
@click.option("--dry-run", is_flag=True, help="Print how the weights are spread and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the tally as JSON.")
def weight(
    store: str | None, scheme: str, goal: Path | None, dry_run: bool, as_json: bool, **asked: Any
) -> None:
    """Give each learned step of STORE a weight from what its episode earned.

    Without STORE, of the last store that was written here.

    \b
    trajkit weight stores/goto --scheme exponential --temperature 0.1
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.cli.derived import print_derived
    from trajkit.commands.place import goal_of, last_store
    from trajkit.curation.weight import weight as weight_store

    options = {name: value for name, value in asked.items() if value not in (None, ())}
    goal = None if dry_run else goal_of("weight", goal)
    made = weight_store(store or last_store(talk), goal, scheme=scheme, **options)
    if not as_json:
        _print(made.report)
    print_derived(
        made.entry, made.manifest, goal, as_json=as_json, more={"report": made.report.model_dump(mode="json")}
    )


def _print(report: WeightReport) -> None:
    headings = ("steps", "of weight 0", "below 0", "min", "1/4", "median", "3/4", "max", "mean")
    effective = ("effective steps", "effective episodes")
    spreads = [*report.tasks, report.all] if len(report.tasks) > 1 else [report.all]
    table(
        [Cell("weights"), *(Cell(heading, is_number=True) for heading in (*headings, *effective))],
        [_row(spread) for spread in spreads],
    )
    for note in report.notes:
        talk(f"note: {note}")


def _row(spread: Spread) -> tuple[str, ...]:
    numbers = (
        spread.least,
        spread.quarter,
        spread.median,
        spread.three_quarters,
        spread.most,
        spread.mean,
    )
    return (
        "all" if spread.task is None else spread.task,
        *(count(number) for number in (spread.n_steps, spread.n_zero, spread.n_negative)),
        *(f"{number:.4g}" for number in numbers),
        f"{spread.n_effective_steps:,.1f} of {spread.n_steps:,}",
        f"{spread.n_effective_episodes:,.1f} of {spread.n_episodes:,}",
    )
