"""Choose episodes of a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from trajkit._core.output.console import Meter, plural, talk
from trajkit.commands.options.group import EngineOptions, engine_of, flattened
from trajkit.commands.options.types import Columns, Conditions, Count, Option, Output, StoreLike, many
from trajkit.commands.place import goal_of, store_path
from trajkit.commands.result import Made, store_line

if TYPE_CHECKING:
    from trajkit.schema import LineageEntry


@flattened()
def select(
    store: StoreLike | None = None,
    *,
    unreserved: bool = False,
    where: Conditions = (),
    best_of: Count | None = None,
    top: Annotated[int | str | None, Option(metavar="N|P%")] = None,
    shortest: bool = False,
    max_per_task: Count | None = None,
    balance: Columns = (),
    sample: Count | None = None,
    by: Columns = (),
    score: Annotated[str | None, Option(metavar="METRIC")] = None,
    seed: int = 0,
    control: bool = False,
    output: Output = None,
    dry_run: bool = False,
    **engine: Unpack[EngineOptions],
) -> Made:
    """Choose episodes, with a control to compare against.

    The options apply in the order in which they are listed. A condition is an SQL expression over the columns
    of episodes, metrics, tags (tags.KEY), and n, n_success, avg, best, worst, rank and pass@k of the
    episode's group in the whole store; comparisons may be chained, as in 0 < avg < 1. An unknown value fails
    every comparison, and passes a negated one: `not speed > 1` keeps an episode without speed.

    Args:
        store: The store. Default: the last store written here.
        unreserved: Leave out episodes of reserved worlds, by seed or by initial state.
        where: Keep the episodes for which this is true.
        best_of: Keep the best of N random attempts of each group.
        top: Keep the best N, or P% rounded up, of each group.
        shortest: Keep the episode with the fewest steps of each group.
        max_per_task: Keep at most N random episodes of each task.
        balance: Keep as many random episodes of each combination as the rarest has, such as task,variant.
        sample: Keep N random episodes of what is left.
        by: Columns that make a group. Default: environment, task and seed.
        score: Metric that ranks episodes. Default: episode_return, else total_reward.
        seed: Seed of all random choices.
        control: Also write a random set with as much to learn (tokens, else characters), as OUTPUT-control.
        output: The store to write.
        dry_run: Print the tally and write nothing.

    Raises:
        QueryError: A condition or a column is wrong.
        NothingMatched: No episode is left.
        StoreError: The store cannot be read, or `output` exists.

    Example:
        trajkit select --where "0 < avg < 1 and rank == 1"
    """
    from trajkit.curation.selection.select import select as select_episodes

    goal = None if dry_run else goal_of("select", output)
    with Meter() as meter:
        manifest, entry = select_episodes(
            store_path(store),
            goal,
            unreserved=unreserved,
            where=many(where),
            best_of=best_of,
            top=top,
            shortest=shortest,
            max_per_task=max_per_task,
            balance=many(balance),
            sample=sample,
            by=many(by),
            score=score,
            seed=seed,
            control=control,
            engine=engine_of(engine, meter.show),
        )
    for note in _notes(entry):
        talk(note)
    if goal is None or not control:
        return Made(entry, goal, manifest).kept()
    more, line = _control(goal)
    return Made(entry, goal, manifest, more={"control": more}, lines=(line,)).kept()


def _notes(entry: LineageEntry) -> Iterator[str]:
    n = entry.result.get("n_ungrouped")
    if isinstance(n, int):
        yield f"{plural(n, 'episode')} without {entry.result['group']}: each is a group of its own"
    if entry.result.get("largest_group") == 1:
        yield (
            f"note: every group has one episode, which is its best, by {entry.result['group']}: a rank or "
            "a share leaves nothing out; --by COLUMNS makes larger groups"
        )


def _control(goal: Path) -> tuple[dict[str, Any], str]:
    """The control as fields of the JSON, and as a line."""
    from trajkit.curation.selection.control import control_goal
    from trajkit.store.reader import open_store

    place = control_goal(goal)
    manifest = open_store(place).manifest
    drawn: Any = manifest.lineage[-1].result
    n_episodes = plural(manifest.counts.n_episodes, "episode")
    return (
        {"store": str(place), "digest": manifest.digest, **drawn},
        f"{store_line(place, manifest)}  {drawn['n_drawn']:,} {drawn['unit']} for {drawn['n_chosen']:,}, "
        f"{drawn['n_episodes_both']:,} of {n_episodes} in both",
    )
