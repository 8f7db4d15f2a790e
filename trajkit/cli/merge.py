"""`trajkit merge`: one store of several."""

from __future__ import annotations

from pathlib import Path

import click

from trajkit.cli.derived import print_derived
from trajkit.commands.place import goal_of

_EPILOG = """\
For the shards of an export (`--shard 3/16`), for what `export --after` brought, or for stores of different
origin. Shards have, merged, the digest of the whole. An episode that two stores have with the same content is
kept once and counted; with different content it is an error, unless --prefer says which stays.
"""


@click.command(epilog=_EPILOG)
@click.argument("stores", nargs=-1, required=True, metavar="STORE STORE…")
@click.option(
    "--prefer",
    type=click.Choice(["first", "last"]),
    help="Whose episode stays where two stores differ: that of the store named first, or last.",
)
@click.option("-o", "--output", "goal", type=click.Path(path_type=Path), help="The store to write.")
@click.option("--dry-run", is_flag=True, help="Print the tally and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the tally as JSON.")
def merge(
    stores: tuple[str, ...], prefer: str | None, goal: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Put the episodes of several STOREs into one.

    \b
    trajkit merge shard-1 shard-2 shard-3 -o whole
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.curation.merge import merge as merge_stores

    goal = None if dry_run else goal_of("merge", goal)
    merged = merge_stores(stores, goal, prefer=prefer)
    print_derived(merged.entry, merged.manifest, goal, as_json=as_json)
