"""Choose episodes: a store in, a store out, and the account of what left and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from trajkit.commands.made import Made
from trajkit.commands.place import Many, Place, StoreLike, goal_of, many, remember_store, store_path

if TYPE_CHECKING:
    from pathlib import Path

    from trajkit.curation.split import Split


def select(
    store: StoreLike | None = None,
    *,
    unreserved: bool = False,
    where: Many = (),
    best_of: int | None = None,
    top: int | str | None = None,
    shortest: bool = False,
    max_per_task: int | None = None,
    balance: Many = (),
    sample: int | None = None,
    by: Many = (),
    score: str | None = None,
    seed: int = 0,
    control: bool = False,
    output: Place | None = None,
    dry_run: bool = False,
) -> Made:
    """Choose episodes. The options apply in the order in which they stand here.

    Args:
        store: The store; None for the last one that was written here.
        unreserved: Leave out episodes of reserved worlds, by seed or by state.
        where: Keep the episodes for which these are true: SQL over columns, metrics, tags, and n, avg, best,
            rank of the episode's group.
        best_of: Keep the best of so many attempts of each group, drawn by lot.
        top: Keep the best so many, or `P%`, of each group.
        shortest: Keep the episode with the fewest steps of each group.
        max_per_task: Keep at most so many of each task, drawn by lot.
        balance: Columns: keep as many of each combination as the rarest has.
        sample: Keep so many of what is left, drawn by lot.
        by: What makes a group; none for environment, task and seed.
        score: The metric that is compared; None for `episode_return`, else `total_reward`.
        seed: Of every lot.
        control: Also write a random set of equal size, beside the store, with `-control` in its name.
        output: The store to write; None for one in the folder of stores.
        dry_run: Write nothing.

    Raises:
        QueryError: A condition or a column is wrong.
        NothingMatched: No episode is left.
        StoreError: The store cannot be read, or `output` exists.
    """
    from trajkit.curation.select import select as select_episodes

    goal = None if dry_run else goal_of("select", output)
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
    )
    return kept(Made(entry, goal, manifest))


def dedupe(
    store: StoreLike | None = None,
    *,
    exact: bool = False,
    episodes: bool = False,
    near: float | None = None,
    shingle: int = 5,
    output: Place | None = None,
    dry_run: bool = False,
) -> Made:
    """Leave out what is there more than once; a step that repeats another stays as context.

    Args:
        store: The store; None for the last one that was written here.
        exact: Steps with the same prompt and answer.
        episodes: Episodes with the same actions from the same start.
        near: Steps with the same action and prompts at least this alike, from 0 to 1.
        shingle: Words of a run that `near` compares prompts by.
        output: The store to write; None for one in the folder of stores.
        dry_run: Write nothing.

    Raises:
        RequestError: Nothing is asked for, or a number is out of its range.
        StoreError: The store cannot be read, or `output` exists.
    """
    from trajkit.curation.dedupe import dedupe as drop_duplicates

    goal = None if dry_run else goal_of("dedupe", output)
    manifest, entry = drop_duplicates(
        store_path(store), goal, exact=exact, episodes=episodes, near=near, shingle=shingle
    )
    return kept(Made(entry, goal, manifest))


class Sides(NamedTuple):
    """What a split made."""

    report: Split
    """How many groups, episodes and steps are on each side, and what they are kept together by."""
    made: dict[str, Made]
    """The store of each side, by its name; without a store after a dry run."""


def split(
    store: StoreLike | None = None,
    *,
    ratio: Mapping[str, float] | str = "train=0.9,val=0.1",
    by: Many = (),
    seed: int = 0,
    missing: Literal["episode", "leave"] | None = None,
    output: Place | None = None,
    dry_run: bool = False,
) -> Sides:
    """Cut a store into sides that share nothing: the same everywhere, also when data is added.

    Args:
        store: The store; None for the last one that was written here.
        ratio: Share of each side, or whole numbers of episodes; as a mapping, or as it is typed.
        by: Columns, metrics or `tags.NAME` to keep together; none for worlds. `prompt` also makes one of
            groups that share a prompt, a world or an initial state.
        seed: Another one gives another split.
        missing: Episodes without `by`: each a group of its own, or left out.
        output: The folder with a store per side; None for one in the folder of stores.
        dry_run: Write nothing.

    Raises:
        RequestError: A share cannot be, or nobody can tell groups apart.
        NothingMatched: A side would be empty.
    """
    from trajkit.curation.ratio import parse_ratio
    from trajkit.curation.split import Missing
    from trajkit.curation.split import split as cut

    goal = None if dry_run else goal_of("split", output)
    report, manifests = cut(
        store_path(store),
        goal,
        ratio=parse_ratio(ratio) if isinstance(ratio, str) else ratio,
        by=many(by),
        seed=seed,
        missing=None if missing is None else Missing(missing),
    )
    made = {}
    for side, entry in zip(report.sides, report.entries, strict=True):
        path: Path | None = None if goal is None else goal / side.name
        made[side.name] = Made(entry, path, manifests.get(side.name))
    kept(next(iter(made.values())))
    return Sides(report, made)


def merge(
    stores: Iterable[StoreLike],
    *,
    prefer: Literal["first", "last"] | None = None,
    output: Place | None = None,
    dry_run: bool = False,
) -> Made:
    """Put the episodes of several stores into one; the shards of an export have the digest of the whole.

    Args:
        stores: Two or more.
        prefer: Whose episode stays where two differ; None makes that an error.
        output: The store to write; None for one in the folder of stores.
        dry_run: Write nothing.

    Raises:
        DataError: Two stores differ in an episode.
        StoreError: A store cannot be read, or `output` exists.
    """
    from trajkit.curation.merge import merge as merge_stores

    goal = None if dry_run else goal_of("merge", output)
    merged = merge_stores([store_path(store) for store in stores], goal, prefer=prefer)
    return kept(Made(merged.entry, goal, merged.manifest))


def kept(made: Made) -> Made:
    """What was made, which is from now on the last store, where it is one."""
    if made.path is not None and made.manifest is not None:
        remember_store(made.path)
    return made
