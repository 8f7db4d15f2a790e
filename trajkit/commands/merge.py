"""Put the episodes of several stores into one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Unpack

from trajkit._core.output.console import Meter
from trajkit.commands.options.group import EngineOptions, engine_of, flattened
from trajkit.commands.options.types import Option, Output, StoreLike
from trajkit.commands.place import goal_of, store_path
from trajkit.commands.result import Made


@flattened()
def merge(
    stores: Annotated[Iterable[StoreLike], Option(is_repeated=True, metavar="STORE STORE…")],
    *,
    prefer: Literal["first", "last"] | None = None,
    output: Output = None,
    dry_run: bool = False,
    **engine: Unpack[EngineOptions],
) -> Made:
    """Put the episodes of several stores into one.

    For the shards of an export (`--shard 3/16`), for the store of `export --after`, or for stores of
    different origin. The merged shards of an export have the digest of the whole export. An episode that two
    stores have with the same content is kept once and counted; with different content it is an error, unless
    --prefer decides.

    Args:
        stores: Two stores or more.
        prefer: Keep the episode of the store named first, or last, where two stores differ.
        output: The store to write.
        dry_run: Print the tally and write nothing.

    Raises:
        DataError: Two stores differ in an episode.
        StoreError: A store cannot be read, or `output` exists.

    Example:
        trajkit merge shard-1 shard-2 shard-3 -o whole
    """
    from trajkit.curation.merge import merge as merge_stores

    goal = None if dry_run else goal_of("merge", output)
    with Meter() as meter:
        merged = merge_stores(
            [store_path(store) for store in stores],
            goal,
            prefer=prefer,
            engine=engine_of(engine, meter.show),
        )
    return Made(merged.entry, goal, merged.manifest).kept()
