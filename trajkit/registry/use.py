"""List the episodes that trained a model and how many steps of each, from the rows, else from the store."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from trajkit.errors import StoreError
from trajkit.registry.ledger import Learned
from trajkit.schema import Model
from trajkit.schema.base import Count, Name
from trajkit.store.engine import connect, literal, scan
from trajkit.store.reader import open_store

_PAIRS = "chosen_episode_id"


class Use(Model):
    """How a training used an episode."""

    episode_id: Name
    """Which."""
    n_steps: Count
    """Its steps that were looked at; of pairs, how often it is a side of one."""
    n_learned: Count
    """Those that a row teaches."""


class Unknown(Model):
    """Why the learned episodes are unknown."""

    reason: Name
    """In words."""


def uses_of(learned: Learned, *, episode_id: str | None = None) -> list[Use] | Unknown:
    """The episodes behind a training, by id.

    Args:
        learned: What it was trained or measured on.
        episode_id: Only this one; None for all.

    Returns:
        The uses, or why they are not known: the rows and the store are both gone.
    """
    condition = "" if episode_id is None else f"WHERE episode_id = {literal(episode_id)}"
    source = _of_rows(learned.rows) if learned.rows is not None and learned.rows.is_file() else None
    if source is None:
        try:
            store = open_store(learned.store)
        except StoreError:
            return Unknown(reason=f"{learned.store} is not there any more, and neither are the rows")
        if store.manifest.digest != learned.digest:
            return Unknown(reason=f"{learned.store} is another store now, and the rows are gone")
        source = f"(SELECT episode_id, loss_weight <> 0 AS is_learned FROM {scan(store.parts('steps'))})"
    query = (
        "SELECT episode_id, count(*), count(*) FILTER (WHERE is_learned)"
        f" FROM {source} {condition} GROUP BY episode_id ORDER BY episode_id"
    )
    try:
        with connect() as connection:
            rows = connection.execute(query).fetchall()
    except duckdb.Error as error:
        return Unknown(reason=f"{learned.rows or learned.store} cannot be read: {str(error).splitlines()[0]}")
    return [Use(episode_id=each, n_steps=n, n_learned=n_learned) for each, n, n_learned in rows]


def _of_rows(path: Path) -> str:
    """SQL for a step, or a side of a pair, in each row, and whether it is learned."""
    rows = scan([path])
    if _PAIRS not in pq.read_schema(path).names:
        return f"(SELECT episode_id, row IS NOT NULL AND weight <> 0 AS is_learned FROM {rows})"
    sides = [
        f"SELECT {side}_episode_id AS episode_id, row IS NOT NULL AS is_learned FROM {rows}"
        f" WHERE side IS NULL OR side = '{side}'"
        for side in ("chosen", "rejected")
    ]
    return f"({' UNION ALL '.join(sides)})"
