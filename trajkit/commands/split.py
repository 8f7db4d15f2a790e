"""Cut a store into sides that share nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from trajkit._core.output.console import Cell, Meter, count, plural, table_text, talk
from trajkit._core.output.result import Result
from trajkit.commands.options.group import EngineOptions, engine_of, flattened
from trajkit.commands.options.types import Columns, Option, Output, StoreLike, many
from trajkit.commands.place import goal_of, remember_store, store_path
from trajkit.commands.result import Made, store_line

if TYPE_CHECKING:
    from trajkit.curation.selection.split import Split


@dataclass(frozen=True)
class Sides(Result):
    """The sides of a split, and the store of each."""

    report: Split
    """How many groups, episodes and steps are on each side, and the key that keeps them together."""
    made: dict[str, Made]
    """The store of each side by its name; without a store after a dry run."""

    def to_json(self) -> dict[str, Any]:
        """The stores with their digests, and the report."""
        stores = {
            name: {"store": str(made.path), "digest": made.manifest.digest}
            for name, made in self.made.items()
            if made.manifest is not None
        }
        return {"stores": stores, **self.report.model_dump(mode="json")}

    def __str__(self) -> str:
        numbers = [Cell(heading, is_number=True) for heading in ("groups", "episodes", "steps")]
        rows = [
            (side.name, count(side.n_groups), count(side.n_episodes), count(side.n_steps))
            for side in self.report.sides
        ]
        own = {f"in {side.name}" for side in self.report.sides}
        rows += [
            (f"left: {left.reason}", "", count(left.n_episodes), count(left.n_steps))
            for left in self.report.entries[0].left
            if left.reason not in own
        ]
        stores = [
            store_line(made.path, made.manifest)
            for made in self.made.values()
            if made.path is not None and made.manifest is not None
        ]
        return "\n".join((table_text([Cell("side"), *numbers], rows), *stores))


@flattened()
def split(
    store: StoreLike | None = None,
    *,
    ratio: Annotated[Mapping[str, float] | str, Option(metavar="SIDE=SHARE,…")] = "train=0.9,val=0.1",
    by: Columns = (),
    seed: int = 0,
    missing: Literal["episode", "leave"] | None = None,
    output: Output = None,
    dry_run: bool = False,
    **engine: Unpack[EngineOptions],
) -> Sides:
    """Cut a store into sides that share nothing.

    Each group goes to a side by the hash of its key and --seed: the same on every machine, and stable as data
    is added, except for a group given to a side that would have been empty. Without --by a group is a world:
    environment, task and seed; else the initial state; else the episode. `--by prompt`, alone or with
    columns, also joins groups that share a prompt, a world or an initial state. A share has a point or a %;
    what the shares leave over is left out. A whole number is a count: the side then has at most this many
    episodes, in whole groups.

    Args:
        store: The store. Default: the last store written here.
        ratio: Sides with their shares, or counts such as train=500,val=100.
        by: Keep episodes together that are equal in these columns, metrics or tags.NAME; `prompt` for a
            shared prompt.
        seed: Seed of the hash: another seed gives another split.
        missing: Make each episode without --by a group of its own, or leave it out. Default: episode, for up
            to half.
        output: The folder that gets a store per side.
        dry_run: Print the sides and write nothing.

    Raises:
        RequestError: A share is impossible, or no column tells groups apart.
        NothingMatched: A side would be empty.

    Example:
        trajkit split --ratio train=0.9,val=0.1 --by tags.customer_id --seed 7 -o data
        writes the stores data/train and data/val.
    """
    from trajkit.curation.selection.split import Missing, parse_ratio
    from trajkit.curation.selection.split import split as cut

    goal = None if dry_run else goal_of("split", output)
    with Meter() as meter:
        report, manifests = cut(
            store_path(store),
            goal,
            ratio=parse_ratio(ratio) if isinstance(ratio, str) else ratio,
            by=many(by),
            seed=seed,
            missing=None if missing is None else Missing(missing),
            engine=engine_of(engine, meter.show),
        )
    for note in _notes(report):
        talk(note)
    sides = {
        side.name: Made(entry, None if goal is None else goal / side.name, manifests.get(side.name))
        for side, entry in zip(report.sides, report.entries, strict=True)
    }
    if goal is None:
        talk("dry run: nothing was written")
    else:
        remember_store(goal / report.sides[0].name)
    return Sides(report, sides)


def _notes(report: Split) -> Iterator[str]:
    yield f"kept together by {report.by}"
    if n := report.n_episodes_without_key:
        yield f"warning: {plural(n, 'episode')} of {report.n_episodes:,} without {report.by}"
    for name in report.nearest:
        yield f"note: no group falls to {name} by its hash: it gets the nearest group"
    for n, one, column in (
        (report.n_worlds_shared, "world", "without --by"),
        (report.n_states_shared, "initial state", "with --by initial_state_hash"),
        (report.n_texts_shared, "text", "with --by prompt as well"),
    ):
        if n:
            yield (
                f"warning: {plural(n, one)} on more than one side, which trajkit leak refuses; "
                f"split {column} to keep them together"
            )
