"""Find evaluation worlds that read like training data, so that the others are measured apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import duckdb

from trajkit.curation.leak import leak
from trajkit.evaluation.groups import Source


class Aliases(NamedTuple):
    """The overlap of an evaluation with the training stores."""

    n_worlds: int
    """Worlds with environment, task and seed."""
    n_aliased: int
    """Those that read at their start like an episode of a training store."""
    leaks: tuple[str, ...]
    """Forbidden overlap, in words."""


def leave_out(
    connection: duckdb.DuckDBPyConnection, learned: Sequence[Source], sources: Sequence[Source]
) -> Aliases:
    """Find the aliased worlds, and delete their episodes from the table `g`.

    Args:
        connection: Where `name_groups` was.
        learned: The training stores.
        sources: The evaluation stores.
    """
    connection.execute("CREATE TEMP TABLE aliased (env_id VARCHAR, task VARCHAR, seed BIGINT)")
    leaks: list[str] = []
    for training in learned:
        for source in sources:
            found = leak(training.store.path, source.store.path, near=None, reservations=())
            leaks += [
                f"{source.store.path} and {training.store.path}: {each.words}"
                for each in found.findings
                if each.n_blocking
            ]
            if found.aliased.worlds:
                connection.executemany(
                    "INSERT INTO aliased VALUES (?, ?, ?)",
                    [[world.env_id, world.task, world.seed] for world in found.aliased.worlds],
                )
    world = "FROM g WHERE seed IS NOT NULL"
    is_aliased = "(env_id, task, seed) IN (SELECT (env_id, task, seed) FROM aliased)"
    count = f"SELECT count(DISTINCT (env_id, task, seed)) {world}"
    n_worlds, n_aliased = (
        int(connection.execute(text).fetchall()[0][0]) for text in (count, f"{count} AND {is_aliased}")
    )
    connection.execute(f"DELETE FROM g WHERE seed IS NOT NULL AND {is_aliased}")
    return Aliases(n_worlds, n_aliased, tuple(leaks))
