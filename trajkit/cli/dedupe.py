"""`trajkit dedupe`: learn nothing twice."""

from __future__ import annotations

from pathlib import Path

import click

from trajkit.cli.derived import print_derived
from trajkit.cli.output import Meter, plural, result, talk
from trajkit.commands.place import goal_of, last_store

_EPILOG = """\
A step that repeats another stays as context and is not learned; an episode leaves when it repeats another, or
when none of its steps is learned any more. The first by id stays. White space at the ends of texts and how
much of it there is do not count, nor do ids of tool calls. OUTPUT.duplicates.parquet has the group of every
row that was dropped.
"""


@click.command(epilog=_EPILOG)
@click.argument("store", required=False)
@click.option("--exact", is_flag=True, help="Steps with the same prompt and answer.")
@click.option("--episodes", is_flag=True, help="Episodes with the same actions from the same start.")
@click.option(
    "--near",
    type=float,
    metavar="SIMILARITY",
    help="Steps with the same action and prompts at least this alike, such as 0.9.",
)
@click.option(
    "--shingle",
    type=int,
    default=5,
    show_default=True,
    help="Words of a run that --near compares prompts by.",
)
@click.option("-o", "--output", "goal", type=click.Path(path_type=Path), help="The store to write.")
@click.option("--dry-run", is_flag=True, help="Print the tally and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the tally as JSON.")
def dedupe(
    store: str | None,
    exact: bool,
    episodes: bool,
    near: float | None,
    shingle: int,
    goal: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Take duplicates out of STORE; without one, out of the last store that was written here.

    \b
    trajkit dedupe --exact --episodes --near 0.9
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.curation.dedupe import dedupe as drop_duplicates
    from trajkit.curation.dedupe import groups_path

    goal = None if dry_run else goal_of("dedupe", goal)
    with Meter() as meter:
        manifest, entry = drop_duplicates(
            store or last_store(talk),
            goal,
            exact=exact,
            episodes=episodes,
            near=near,
            shingle=shingle,
            on_progress=lambda n_done, n_total: meter.show("signing prompts", n_done, n_total),
        )
    n_unknown = entry.arguments.get("n_not_compared")
    if isinstance(n_unknown, int):
        talk(f"{plural(n_unknown, 'step')} with no known prompt or answer: not compared")
    print_derived(entry, manifest, goal, as_json=as_json)
    if goal is not None and not as_json:
        result(f"{groups_path(goal)}  what was dropped, and for what")
