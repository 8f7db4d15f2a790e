"""`trajkit select`: choose episodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit.cli.derived import columns_given, print_derived, store_line
from trajkit.cli.output import plural, result, talk
from trajkit.commands.place import goal_of, last_store

if TYPE_CHECKING:
    from trajkit.schema import LineageEntry

_EPILOG = """\
The options apply in the order in which they stand above. A condition is an SQL expression over
the columns of episodes, metrics, tags (tags.KEY), and n, n_success, avg, best, worst, rank and pass@k of the
episode's group in the whole store; comparisons may be chained, as in 0 < avg < 1. What was never measured
passes no comparison, and passes a negated one: not speed > 1 keeps an episode without speed.
"""


@click.command(epilog=_EPILOG)
@click.argument("store", required=False)
@click.option(
    "--unreserved", is_flag=True, help="Leave out episodes of reserved worlds, by seed or by state."
)
@click.option("--where", multiple=True, metavar="SQL", help="Keep the episodes for which this is true.")
@click.option(
    "--best-of",
    type=click.IntRange(1),
    metavar="N",
    help="Keep the best of N attempts of each group, drawn by lot.",
)
@click.option("--top", metavar="N|P%", help="Keep the best N, or P% rounded up, of each group.")
@click.option("--shortest", is_flag=True, help="Keep the episode with the fewest steps of each group.")
@click.option(
    "--max-per-task", type=click.IntRange(1), metavar="N", help="Keep at most N of each task, drawn by lot."
)
@click.option(
    "--balance",
    multiple=True,
    callback=columns_given,
    metavar="COLUMNS",
    help="Keep as many of each combination as the rarest has, drawn by lot; such as task,variant.",
)
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Keep N of what is left, drawn by lot.")
@click.option(
    "--by",
    multiple=True,
    callback=columns_given,
    metavar="COLUMNS",
    help="What makes a group.  [default: environment, task and seed]",
)
@click.option(
    "--score",
    metavar="METRIC",
    help="What is compared.  [default: episode_return, else total_reward]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of every lot.")
@click.option("--control", is_flag=True, help="Also write a random set of equal size, as OUTPUT-control.")
@click.option("-o", "--output", "goal", type=click.Path(path_type=Path), help="The store to write.")
@click.option("--dry-run", is_flag=True, help="Print the tally and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the tally as JSON.")
def select(store: str | None, goal: Path | None, dry_run: bool, as_json: bool, **asked: Any) -> None:
    """Choose episodes of STORE; without one, of the last store that was written here.

    \b
    trajkit select --where "0 < avg < 1 and rank == 1"
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.curation.select import select as select_episodes

    goal = None if dry_run else goal_of("select", goal)
    manifest, entry = select_episodes(store or last_store(talk), goal, **asked)
    _say_ungrouped(entry)
    has_control = goal is not None and asked["control"]
    control = _control(goal) if goal is not None and has_control else None
    print_derived(entry, manifest, goal, as_json=as_json, more=control and {"control": control[0]})
    if control and not as_json:
        result(control[1])


def _say_ungrouped(entry: LineageEntry) -> None:
    n = entry.arguments.get("n_ungrouped")
    if isinstance(n, int):
        talk(f"{plural(n, 'episode')} without {entry.arguments['group']}: each is a group of its own")
    if entry.arguments.get("largest_group") == 1:
        talk(
            f"note: every group has one episode, which is its best, by {entry.arguments['group']}: a rank or "
            "a share leaves nothing out; --by COLUMNS makes larger groups"
        )


def _control(goal: Path) -> tuple[dict[str, Any], str]:
    """What the control holds, for --json and as a line."""
    from trajkit.curation.control import control_goal
    from trajkit.store.reader import open_store

    place = control_goal(goal)
    manifest = open_store(place).manifest
    arguments = manifest.lineage[-1].arguments
    said = (
        f"{arguments['n_drawn']:,} {arguments['unit']} for {arguments['n_chosen']:,}, "
        f"{arguments['n_episodes_both']:,} of {plural(manifest.counts.n_episodes, 'episode')} in both"
    )
    return (
        {"store": str(place), "digest": manifest.digest, **arguments},
        f"{store_line(place, manifest)}  {said}",
    )
