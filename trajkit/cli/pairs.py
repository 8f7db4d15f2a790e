"""`trajkit pairs`: preference pairs from the episodes of a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._core.console import count, plural, result, result_json, talk
from trajkit._core.settings import remember
from trajkit.cli.derived import columns_given

if TYPE_CHECKING:
    from trajkit.curation.pairs import PairsReport

_EPILOG = """\
\b
state          the same environment, task, seed and initial state, and the same seen and done so far
prompt         the same prompt and tools, whatever led to it
demonstration  a step's answer, and the better one that somebody gave for it

The pairs are in a folder: pairs.parquet, and pairs.json with what they are and where they are from. Both
sides have the same group key, so that no split parts them, unless STORE is one side of a split already. By
state, both episodes are replayed where the environment is one of trajkit's, or is named with --env.
"""


@click.command(epilog=_EPILOG)
@click.argument("store", required=False)
@click.option(
    "--match",
    type=click.Choice(["state", "prompt", "demonstration"]),
    default="state",
    show_default=True,
    help="What the two sides have in common.",
)
@click.option(
    "--level",
    type=click.Choice(["step", "episode"]),
    default="step",
    show_default=True,
    help="A side is one answer, or all turns from there to the end.",
)
@click.option(
    "--margin", type=float, metavar="NUMBER", help="How much better the chosen episode is at least; required."
)
@click.option(
    "--per-state", type=int, default=1, show_default=True, help="At most so many pairs from one state."
)
@click.option("--same-prompt", is_flag=True, help="By state: only where the model also saw the same prompt.")
@click.option(
    "--score",
    metavar="NAME",
    help="What to compare by: a metric.  [default: episode_return, else total_reward]",
)
@click.option(
    "--by",
    multiple=True,
    callback=columns_given,
    metavar="COLUMNS",
    help="What keeps episodes together in a split.  [default: environment, task and seed]",
)
@click.option("--include-eval", is_flag=True, help="Pair evaluation episodes too; they must not train.")
@click.option("--no-verify", is_flag=True, help="Do not replay the episodes.")
@click.option("--env", metavar="ENV", help="The environment to replay in, such as my_pkg.env:MyEnv.")
@click.option("-o", "--output", "goal", type=click.Path(path_type=Path), help="The folder to write.")
@click.option("--dry-run", is_flag=True, help="Print the tally and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the tally as JSON.")
def pairs(
    store: str | None, goal: Path | None, no_verify: bool, dry_run: bool, as_json: bool, **asked: Any
) -> None:
    """Write preference pairs, a better and a worse continuation of one state, from STORE.

    Without STORE, from the last store that was written here.

    \b
    trajkit pairs stores/goto --margin 0.1
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.cli.derived import print_entry
    from trajkit.commands.place import goal_of, last_store
    from trajkit.curation.pairs import pairs as pair_store

    goal = None if dry_run else goal_of("pairs", goal)
    made = pair_store(store or last_store(talk), goal, verify=not no_verify, **asked)
    if as_json:
        result_json(
            {
                "pairs": None if goal is None else str(goal),
                "digest": None if made.manifest is None else made.manifest.digest,
                **made.entry.model_dump(mode="json"),
                "report": made.report.model_dump(mode="json"),
            }
        )
    else:
        print_entry(made.entry)
        _talk(made.report, is_checked=asked["match"] == "state" and not no_verify)
    if goal is None or made.manifest is None:
        if not as_json:
            result(plural(made.report.n_pairs, "pair"))
        talk("dry run: nothing was written")
        return
    remember("last_pairs", {"path": str(goal.absolute())})
    if not as_json:
        result(f"{goal}  {plural(made.report.n_pairs, 'pair')}  digest {made.manifest.digest[:12]}")


def _talk(report: PairsReport, *, is_checked: bool) -> None:
    if is_checked:
        talk(f"verified by replay: {count(report.n_verified)} of {plural(report.n_pairs, 'pair')}")
    for reason, n_episodes in report.unverified.items():
        talk(f"not replayed: {plural(n_episodes, 'episode')}: {reason}")
    if report.n_other_prompt:
        talk(
            f"note: in {plural(report.n_other_prompt, 'pair')} the worse side was given another prompt than "
            "the better one, which a trainer would show for both; --same-prompt leaves them out"
        )
    for note in report.notes:
        talk(f"note: {note}")
