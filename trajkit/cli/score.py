"""`trajkit score`: a metric from a function of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from trajkit._core import console
from trajkit.commands.place import last_store

_EPILOG = """\
A scorer takes an episode (with --per step: a step, or a step and its episode) and gives a number, True or
False, or None where there is nothing to say:

\b
    def has_answer(episode):
        return "answer:" in episode.steps[-1].completion.content[0].text

What it raises, and NaN, counts as failed. What was scored is kept in .trajkit until the store is written, so
that the same command goes on where it was stopped.
"""


@click.command(epilog=_EPILOG)
@click.argument("store", required=False)
@click.option("--with", "scorer", required=True, metavar="SCORER", help="my.py:fn, or my_pkg.module:fn.")
@click.option("--name", required=True, help="The metric's name.")
@click.option(
    "--per",
    type=click.Choice(["episode", "step"]),
    default="episode",
    show_default=True,
    help="What is scored.",
)
@click.option("--optimize", type=click.Choice(["max", "min"]), help="Whether more is better, or less.")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many score side by side; each makes a scorer of its own.",
)
@click.option(
    "--max-bad",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How many it may fail on; those stay unknown.",
)
@click.option("--new-run", is_flag=True, help="Score everything again, whatever an earlier run has left.")
@click.option("-o", "--output", "goal", type=click.Path(path_type=Path), help="The store to write.")
@click.option("--dry-run", is_flag=True, help="Score, print the tally and write no store.")
@click.option("--json", "as_json", is_flag=True, help="Print the tally as JSON.")
def score(store: str | None, goal: Path | None, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Score the episodes or steps of STORE; without one, of the last store that was written here.

    \b
    trajkit score stores/train --with checks.py:has_answer --name has_answer -o stores/scored
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.cli.derived import print_derived
    from trajkit.commands.place import goal_of
    from trajkit.curation.score import score as score_store

    goal = None if dry_run else goal_of("score", goal)
    with console.Meter() as meter:
        done = score_store(store or last_store(console.talk), goal, on_progress=meter.show, **options)
    if done.n_resumed:
        console.talk(f"{console.plural(done.n_resumed, 'episode')} were scored by an earlier run")
    for bad in done.bad:
        console.talk(f"not scored: {bad}")
    if more := done.n_bad - len(done.bad):
        console.talk(f"… and {console.count(more)} more")
    if not as_json:
        what = console.plural(done.n_scored, options["per"])
        mean = "" if done.mean is None else f", mean {done.mean:.4g}"
        nothing = f"; nothing said of {console.count(done.n_none)}" if done.n_none else ""
        failed = f"; failed on {console.count(done.n_bad)}" if done.n_bad else ""
        console.result(f"{options['name']}: {what} scored{mean}{nothing}{failed}")
    more_fields = {
        "n_scored": done.n_scored,
        "n_none": done.n_none,
        "n_bad": done.n_bad,
        "n_resumed": done.n_resumed,
        "mean": done.mean,
        "bad": [bad._asdict() for bad in done.bad],
    }
    print_derived(done.entry, done.manifest, goal, as_json=as_json, more=more_fields)
