"""`trajkit split`: cut a store into sides that share nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit.cli import output
from trajkit.cli.derived import store_line
from trajkit.commands.place import goal_of, last_store

if TYPE_CHECKING:
    from trajkit.curation.split import Split
    from trajkit.schema import Manifest

_EPILOG = """\
Each group falls to a side by the hash of its key and --seed: the same everywhere, and when data is added
nobody changes sides, except for a group that a side which would be empty took. Without --by a group is a
world: environment, task and seed; else the initial state; else the episode. --by prompt, alone or with
columns, also makes one of groups that share a prompt, a world or an initial state. A share has a point or a
%; what the shares leave over is left out. A whole number is a count: a side then has at most so many
episodes, in whole groups.
"""


@click.command(epilog=_EPILOG)
@click.argument("store", required=False)
@click.option(
    "--ratio",
    "typed",
    default="train=0.9,val=0.1",
    show_default=True,
    metavar="SIDE=SHARE,…",
    help="Sides with their shares, or counts: train=500,val=100.",
)
@click.option(
    "--by",
    multiple=True,
    metavar="COLUMN",
    help="Keep together what is equal in this column, metric or tags.NAME; `prompt` for what shares one. "
    "Several with commas.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Another one gives another split.")
@click.option(
    "--missing",
    type=click.Choice(["episode", "leave"]),
    help="Episodes without --by: each a group of its own, or left out.  [default: episode, for up to half]",
)
@click.option(
    "-o", "--output", "goal", type=click.Path(path_type=Path), help="The folder with a store per side."
)
@click.option("--dry-run", is_flag=True, help="Print the sides and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def split(
    store: str | None,
    typed: str,
    by: tuple[str, ...],
    seed: int,
    missing: str | None,
    goal: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Cut STORE into sides, such as train and val; without one, the last store that was written here.

    \b
    trajkit split --ratio train=0.9,val=0.1 --by tags.customer_id --seed 7 -o data
    leaves the stores data/train and data/val.
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit._core.settings import remember
    from trajkit.curation.ratio import parse_ratio
    from trajkit.curation.split import Missing
    from trajkit.curation.split import split as cut

    goal = None if dry_run else goal_of("split", goal)
    report, manifests = cut(
        store or last_store(output.talk),
        goal,
        ratio=parse_ratio(typed),
        by=[name for text in by for name in text.split(",")],
        seed=seed,
        missing=None if missing is None else Missing(missing),
    )
    _warn(report)
    if as_json:
        output.result_json(_as_json(report, manifests, goal))
    else:
        _print(report)
    if goal is None:
        output.talk("dry run: nothing was written")
        return
    remember("last_store", {"path": str((goal / report.sides[0].name).absolute())})
    if not as_json:
        for name, manifest in manifests.items():
            output.result(store_line(goal / name, manifest))


def _print(report: Split) -> None:
    numbers = [output.Cell(heading, is_number=True) for heading in ("groups", "episodes", "steps")]
    rows = [
        (side.name, output.count(side.n_groups), output.count(side.n_episodes), output.count(side.n_steps))
        for side in report.sides
    ]
    own = {f"in {side.name}" for side in report.sides}
    rows += [
        (f"left: {left.reason}", "", output.count(left.n_episodes), output.count(left.n_steps))
        for left in report.entries[0].left
        if left.reason not in own
    ]
    output.table([output.Cell("side"), *numbers], rows)


def _warn(report: Split) -> None:
    output.talk(f"kept together by {report.by}")
    if n := report.n_episodes_without_key:
        output.talk(f"warning: {output.plural(n, 'episode')} of {report.n_episodes:,} without {report.by}")
    for name in report.nearest:
        output.talk(f"note: no group falls to {name} by its hash: it has the group that is nearest to it")
    for n, one, column in (
        (report.n_worlds_shared, "world", "without --by"),
        (report.n_states_shared, "initial state", "with --by initial_state_hash"),
        (report.n_texts_shared, "text", "with --by prompt as well"),
    ):
        if n:
            output.talk(
                f"warning: {output.plural(n, one)} on more than one side, which trajkit leak refuses; "
                f"split {column} to keep them together"
            )


def _as_json(report: Split, manifests: dict[str, Manifest], goal: Path | None) -> dict[str, Any]:
    stores = {
        name: {"store": str(goal / name), "digest": manifest.digest}
        for name, manifest in manifests.items()
        if goal is not None
    }
    return {"stores": stores, **report.model_dump(mode="json")}
