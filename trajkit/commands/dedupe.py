"""Leave out duplicate steps and episodes."""

from __future__ import annotations

from typing import Annotated, Unpack

from trajkit._core.output.console import Meter, plural, talk
from trajkit.commands.options.group import EngineOptions, engine_of, flattened
from trajkit.commands.options.types import Option, Output, StoreLike
from trajkit.commands.place import goal_of, store_path
from trajkit.commands.result import Made


@flattened()
def dedupe(
    store: StoreLike | None = None,
    *,
    exact: bool = False,
    episodes: bool = False,
    near: Annotated[float | None, Option(metavar="SIMILARITY")] = None,
    shingle: int = 5,
    output: Output = None,
    dry_run: bool = False,
    **engine: Unpack[EngineOptions],
) -> Made:
    """Leave out duplicate steps and episodes.

    A step that repeats another stays as context and is not learned. An episode is dropped if it repeats
    another, or if none of its steps is learned any more. The first by id is kept. White space at the ends of
    texts, the amount of white space inside them, and ids of tool calls are ignored. OUTPUT.duplicates.parquet
    lists every dropped row with its group.

    Args:
        store: The store. Default: the last store written here.
        exact: Compare steps by prompt and answer.
        episodes: Compare episodes by their actions from the same start.
        near: Compare steps with the same action by the similarity of their prompts, such as 0.9.
        shingle: Words in each n-gram that --near compares.
        output: The store to write.
        dry_run: Print the tally and write nothing.

    Raises:
        RequestError: No comparison is chosen, or a number is out of its range.
        StoreError: The store cannot be read, or `output` exists.

    Example:
        trajkit dedupe --exact --episodes --near 0.9
    """
    from trajkit.curation.selection.dedupe import dedupe as drop_duplicates
    from trajkit.curation.selection.dedupe import groups_path

    goal = None if dry_run else goal_of("dedupe", output)
    with Meter() as meter:
        manifest, entry = drop_duplicates(
            store_path(store),
            goal,
            exact=exact,
            episodes=episodes,
            near=near,
            shingle=shingle,
            engine=engine_of(engine, meter.show),
            on_progress=lambda n_done, n_total: meter.show("reading steps", n_done, n_total),
        )
    n_unknown = entry.result.get("n_not_compared")
    if isinstance(n_unknown, int):
        talk(f"{plural(n_unknown, 'step')} with no known prompt or answer: not compared")
    lines = () if goal is None else (f"{groups_path(goal)}  the dropped rows and their groups",)
    return Made(entry, goal, manifest, lines=lines).kept()
