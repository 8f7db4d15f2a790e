"""Write the notes beside the numbers: what they leave out, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb

from trajkit.evaluation.groups import Group
from trajkit.evaluation.two_way import n_rooms

_OUTSIDE = """
    SELECT (SELECT count(*) FROM left_out), (SELECT count(*) FROM g WHERE purpose IS DISTINCT FROM 'eval')
"""
_UNJUDGED = """
    SELECT group_name, count(*), count(*) FILTER (outcome IN ('unknown', 'error')) AS n_unjudged FROM g
    GROUP BY group_name HAVING n_unjudged > 0 ORDER BY group_name
"""
_REPEATED = """
    SELECT group_name, count(*), count(DISTINCT (task_name, seed)) AS n_worlds, count(DISTINCT store),
        count(DISTINCT model_name)
    FROM g
    WHERE seed IS NOT NULL GROUP BY group_name HAVING count(*) > n_worlds ORDER BY group_name
"""


def notes_on(
    connection: duckdb.DuckDBPyConnection, groups: Sequence[Group], compared: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """A sentence each.

    Args:
        connection: Where `name_groups` was.
        groups: All of them.
        compared: Baselines with their candidates.
    """
    ((n_left, n_not_marked),) = connection.execute(_OUTSIDE).fetchall()
    if n_left:
        yield f"{n_left:,} episodes that are not marked as evaluation are left out"
    if n_not_marked:
        yield f"no episode is marked as evaluation; all {n_not_marked:,} are reported"
    for name, n, n_unjudged in connection.execute(_UNJUDGED).fetchall():
        yield (
            f"{name}: the end of {n_unjudged:,} of {n:,} episodes is an error or unknown; success leaves "
            "them out"
        )
    for name, n, n_worlds, n_stores, n_models in connection.execute(_REPEATED).fetchall():
        played = f"{n_worlds:,} worlds by {n_models:,} models" if n_models > 1 else f"{n_worlds:,} worlds"
        yield f"{name}: {n:,} episodes on {played}; of several attempts at one the mean counts"
        if n_stores > 1:
            yield f"{name} is in {n_stores} stores: NAME=STORE tells them apart if they are different models"
    shared = {(group.n_worlds, n) for group in groups if (n := n_rooms(group.rooms)) is not None}
    for n_worlds, n in sorted(shared):
        yield f"{n_worlds:,} worlds are {n:,} rooms, one for each seed; intervals are over rooms"
    without = sum(world is None for group in groups for world in group.worlds)
    if without:
        yield f"{without:,} episodes have no seed: they cannot be paired"
    alone = [group for group in groups if all(group.name not in pair for pair in compared)]
    for group in alone if compared else ():
        yield (
            f"{group.name} is compared with nothing: no other group was drawn in this way "
            "(--across-decodings compares it)"
        )
    worlds = {group.name: set(group.worlds) - {None} for group in groups}
    for one, other in compared:
        n_both, n_all = len(worlds[one] & worlds[other]), len(worlds[one] | worlds[other])
        if n_both < n_all:
            yield f"{other} against {one}: both played {n_both:,} of {n_all:,} worlds; only those count"
