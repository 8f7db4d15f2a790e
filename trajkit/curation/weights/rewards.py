"""Tell which steps of a store acted, and add up the rewards of each episode step by step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa

from trajkit.curation.derive import Derivation
from trajkit.store.engine import literal

ACTS = "(action_executed IS NOT NULL OR reward IS NOT NULL OR terminated IS NOT NULL)"
"""SQL over `steps`: whether a step acted on the environment, and was not a model call before an action. If no
step of an episode says that it acted, all of them count as acting."""

_STEPS_AT_ONCE = 200_000
_Row = tuple[str, int, float | None, bool]


def add_up(derivation: Derivation, table: str) -> None:
    """Create a table of `episode_id`, `step_index` and `value`, the sum of the rewards up to and with a step.

    The sum is null from the first unknown reward on. Sums are computed in Python, a bounded number of steps
    at a time: DuckDB adds in any order, and the last bit would depend on its threads.
    """
    connection = derivation.connection
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {table} (episode_id VARCHAR, step_index BIGINT, value DOUBLE)"
    )
    for rows in _batches(derivation):
        sums = [each for _, own in itertools.groupby(rows, lambda row: row[0]) for each in _sums(list(own))]
        made = pa.table(
            {
                "episode_id": pa.array([row[0] for row in rows], pa.string()),
                "step_index": pa.array([row[1] for row in rows], pa.int64()),
                "value": pa.array(sums, pa.float64()),
            }
        )
        connection.register("trajkit_sums", made)
        connection.execute(f"INSERT INTO {table} SELECT * FROM trajkit_sums")
        connection.unregister("trajkit_sums")


def _sums(rows: list[_Row]) -> Iterator[float | None]:
    has_acts = any(acts for *_, acts in rows)
    total: float | None = 0.0
    for _, _, reward, acts in rows:
        if acts or not has_acts:
            total = None if reward is None or total is None else total + reward
        yield total


def _batches(derivation: Derivation) -> Iterator[list[_Row]]:
    connection = derivation.connection
    spans = connection.execute(
        "SELECT min(episode_id), max(episode_id) FROM (SELECT episode_id, CAST((sum(n_steps + 1) OVER "
        f"(ORDER BY episode_id) - n_steps - 1) // {_STEPS_AT_ONCE} AS BIGINT) AS batch FROM episodes) "
        "GROUP BY batch ORDER BY batch"
    ).fetchall()
    for lowest, highest in spans:
        yield connection.execute(
            f"SELECT episode_id, step_index, reward, {ACTS} FROM steps "
            f"WHERE episode_id BETWEEN {literal(lowest)} AND {literal(highest)} ORDER BY 1, 2"
        ).fetchall()
