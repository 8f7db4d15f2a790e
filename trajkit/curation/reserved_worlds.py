"""Which episodes of a relation are in a world that is reserved, by its seed or by its state, as SQL."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from trajkit._core.settings import Reservation
from trajkit.curation.keys import FROM_TEXT
from trajkit.store.engine import literal

RESERVED_REASON = "its world is reserved"
"""Why such an episode leaves a selection."""

_SEEDS = "trajkit_reserved_seeds"
_SEED_COLUMNS = ("env", "task", "first", "last", "step")
_STATES = "trajkit_reserved_states"


def in_reserved(connection: duckdb.DuckDBPyConnection, kept: Sequence[Reservation], episode: str) -> str:
    """SQL that is true of an episode in a reserved world, and never null; what it reads is registered.

    Args:
        connection: Whose SQL it is.
        kept: What is reserved.
        episode: The alias of a relation with `env_id`, `task`, `seed` and `initial_state_hash`. A state that
            was only guessed from a text is none: small worlds do read alike.
    """
    seeds = [
        {"env": each.env, "task": task, "first": one[0], "last": one[-1], "step": one.step}
        for each in kept
        for task in each.tasks
        for one in each.seeds.ranges
    ]
    kinds = {name: pa.string() if name in ("env", "task") else pa.int64() for name in _SEED_COLUMNS}
    connection.register(_SEEDS, pa.Table.from_pylist(seeds, pa.schema(kinds)))
    states = sorted({state for each in kept for state in each.states})
    connection.register(_STATES, pa.table({"state": pa.array(states, pa.string())}))
    state = f"{episode}.initial_state_hash"
    return (
        f"(coalesce({state} <> '' AND NOT starts_with({state}, {literal(FROM_TEXT)}) "
        f"AND {state} IN (SELECT state FROM {_STATES}), false) OR EXISTS ("
        f"SELECT 1 FROM {_SEEDS} AS r WHERE r.env = {episode}.env_id AND r.task = {episode}.task "
        f"AND {episode}.seed BETWEEN r.first AND r.last AND ({episode}.seed - r.first) % r.step = 0))"
    )
