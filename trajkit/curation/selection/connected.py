"""Join groups of episodes that share something `trajkit leak` refuses, so that a split has no leak.

Groups that share a text, a world or an initial state become one group, transitively. It gets the least of
their keys.
"""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from trajkit.curation.keys import FROM_TEXT
from trajkit.curation.leaks.texts import first_texts, hashed_steps, step_texts
from trajkit.store.engine import literal
from trajkit.store.view import spans

TEXTS = "trajkit_texts"
"""Table `(episode_id, value)`: fingerprints of prompts and first texts that occur in several episodes."""

HAS_SEED = "env_id IS NOT NULL AND task IS NOT NULL AND seed IS NOT NULL"
"""SQL that is true of an episode whose world is known. Two such episodes may have the same texts."""
HAS_STATE = (
    "nullif(initial_state_hash, '') IS NOT NULL "
    f"AND NOT starts_with(initial_state_hash, {literal(FROM_TEXT)})"
)
"""SQL that is true of an episode whose environment hashed its initial state."""

_WORLDS = (
    "SELECT episode_id, "
    "md5_number('world' || CAST(to_json([env_id, task, CAST(seed AS VARCHAR)]) AS VARCHAR)) AS value "
    "FROM episodes WHERE seed IS NOT NULL UNION ALL "
    f"SELECT episode_id, md5_number('state' || initial_state_hash) FROM episodes WHERE {HAS_STATE}"
)


def find_texts(connection: duckdb.DuckDBPyConnection, *, even_with_seeds: bool) -> None:
    """Create the table `TEXTS` with the texts that must not be on two sides.

    Args:
        connection: Has the views of a store.
        even_with_seeds: Also take texts that only episodes with environment, task and seed share.
    """
    run = connection.execute
    run(f"CREATE TEMP TABLE {TEXTS} (episode_id VARCHAR, value UHUGEINT)")
    ((n_seedless,),) = run(f"SELECT count(*) FROM episodes WHERE NOT ({HAS_SEED})").fetchall()
    if not (n_seedless or even_with_seeds):
        return
    run(f"CREATE TEMP TABLE trajkit_hashed AS {hashed_steps()}")
    for span in spans(connection):
        texts = step_texts(f"(SELECT * FROM trajkit_hashed WHERE {span})")
        run(f"INSERT INTO {TEXTS} SELECT DISTINCT episode_id, near FROM ({texts})")
    run(f"INSERT INTO {TEXTS} SELECT episode_id, first_text FROM ({first_texts()})")
    run("DROP TABLE trajkit_hashed")
    seedless = f"SELECT value FROM {TEXTS} JOIN episodes USING (episode_id) WHERE NOT ({HAS_SEED})"
    where = "" if even_with_seeds else f"WHERE value IN ({seedless})"
    run(
        f"CREATE OR REPLACE TEMP TABLE {TEXTS} AS SELECT * FROM (SELECT DISTINCT * FROM {TEXTS}) {where} "
        "QUALIFY count(*) OVER (PARTITION BY value) > 1"
    )


def join_groups(connection: duckdb.DuckDBPyConnection, members: str, *, only_keyed: bool) -> None:
    """Give groups that share a text of `TEXTS`, a world or an initial state the least of their keys.

    Args:
        connection: Has the views of the store, and `TEXTS`.
        members: Table with `episode_id`, `key` and `has_key`; its keys are updated.
        only_keyed: Whether an episode without a key stays a group of its own.
    """
    known = f"(SELECT * FROM {members} WHERE has_key)" if only_keyed else members
    shared = connection.execute(
        "WITH known AS (SELECT *, dense_rank() OVER (ORDER BY key) - 1 AS number "
        f"FROM {known}), of_group AS (SELECT DISTINCT number, value FROM known JOIN "
        f"(SELECT * FROM {TEXTS} UNION ALL {_WORLDS}) USING (episode_id)) "
        "SELECT CAST(number AS BIGINT) AS number, dense_rank() OVER (ORDER BY value) - 1 AS value FROM "
        "of_group QUALIFY count(*) OVER (PARTITION BY value) > 1"
    ).fetchnumpy()
    if not len(shared["number"]):
        return
    least = least_connected(shared["number"], shared["value"])
    connection.register("trajkit_least", pa.table({"number": np.arange(len(least)), "least": least}))
    connection.execute(
        "CREATE TEMP TABLE trajkit_keys AS WITH known AS (SELECT key, row_number() OVER (ORDER BY key) - 1 "
        f"AS number FROM (SELECT DISTINCT key FROM {known})) SELECT known.key, other.key AS joined FROM "
        "known JOIN trajkit_least USING (number) JOIN known AS other ON other.number = least "
        "WHERE number <> least"
    )
    connection.unregister("trajkit_least")
    connection.execute(
        f"UPDATE {members} SET key = joined FROM trajkit_keys WHERE {members}.key = trajkit_keys.key"
    )


def least_connected(groups: Any, values: Any) -> Any:
    """Return for each group the least number of the groups that it is connected with by shared values.

    Each round hooks the root of a group to the least root among the groups of one of its values, and then
    follows all hooks to their end. Connected sets grow together in few rounds.

    Args:
        groups: Numbers of groups from 0, one row for each value of a group.
        values: The values of these rows, as numbers.
    """
    _, values = np.unique(values, return_inverse=True)
    least = np.arange(int(groups.max()) + 1)
    while True:
        of_value = np.full(int(values.max()) + 1, len(least))
        np.minimum.at(of_value, values, least[groups])
        hooked = least.copy()
        np.minimum.at(hooked, least[groups], of_value[values])
        while not np.array_equal(hooked, further := hooked[hooked]):
            hooked = further
        if np.array_equal(hooked, least):
            return least
        least = hooked
