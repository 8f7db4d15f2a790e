"""Find the episodes that have any row which an earlier store lacks, for `export --after STORE`.

An inference is written when its request ends, under an id from when it began, so a store may lack a row that
is older than its as-of time. For episodes in the store, every row is compared by its id. For all others, rows
from shortly before the as-of time count as new.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import duckdb
import pyarrow as pa

from trajkit.errors import RequestError
from trajkit.sources.choose import UNCHANGED
from trajkit.sources.request import Earlier, ExportRequest, Since
from trajkit.sources.tensorzero.connect.database import TensorZero
from trajkit.store.engine import literal, scan
from trajkit.store.reader import Store, open_store, verify

_LATE = timedelta(minutes=15)
"""Longer requests are rare; a batch's are noticed in the episodes that the store has."""


def earlier(path: str) -> Earlier:
    """The earlier store of `--after`.

    Raises:
        StoreError: It is not a store, or is damaged.
        RequestError: It was not made from a database, so it has no as-of time.
    """
    store = open_store(path)
    verify(store)
    if store.manifest.as_of is None:
        raise RequestError(
            f"--after {path}: the store does not record when its source was read",
            hint="it takes a store that `trajkit export` made from a database, or one derived from it",
        )
    return Earlier(path=store.path, digest=store.manifest.digest, as_of=store.manifest.as_of)


def new_feedback(database: TensorZero, request: ExportRequest) -> Iterator[pa.RecordBatch]:
    """Stream the feedback that the earlier store may lack (`tables.NEW_FEEDBACK`); none without one."""
    return iter(()) if request.after is None else database.new_feedback(_since(request.after), request)


def find_unchanged(connection: duckdb.DuckDBPyConnection, request: ExportRequest) -> None:
    """Make the tables `known_episode`, of the earlier store, and `unchanged`, of episodes to leave out.

    Args:
        connection: Has the tables `step_index_of` and `logged_since`, which is of `new_feedback`.
        request: Names the earlier store.
    """
    if request.after is None:
        return
    _load_known(connection, open_store(request.after.path))
    since = _since(request.after).isoformat()
    connection.execute(
        """
        CREATE OR REPLACE TABLE new_feedback AS SELECT target_id FROM logged_since
        WHERE feedback_id NOT IN (SELECT feedback_id FROM known_feedback)
        """
    )
    connection.execute(
        f"""
        CREATE OR REPLACE TABLE unchanged AS
        SELECT DISTINCT episode_id FROM step_index_of WHERE episode_id NOT IN (
            SELECT episode_id FROM step_index_of
            WHERE inference_id NOT IN (SELECT inference_id FROM known_step)
                AND (episode_id IN (SELECT episode_id FROM known_episode)
                    OR uuid_extract_timestamp(inference_id) >= {literal(since)}::TIMESTAMPTZ)
            UNION ALL SELECT target_id FROM new_feedback
            UNION ALL
            SELECT episode_id FROM step_index_of WHERE inference_id IN (SELECT target_id FROM new_feedback)
        )
        """
    )


def since_then(connection: duckdb.DuckDBPyConnection, request: ExportRequest) -> Since | None:
    """Compare the kept episodes (table `fate`) with those of the earlier store."""
    if request.after is None:
        return None
    ((n_new, n_again, n_refused),) = connection.execute(
        f"""
        SELECT count(*) FILTER (reason IS NULL AND k.episode_id IS NULL),
               count(*) FILTER (reason IS NULL AND k.episode_id IS NOT NULL),
               count(*) FILTER (reason <> '{UNCHANGED}' AND k.episode_id IS NOT NULL)
        FROM fate LEFT JOIN known_episode k USING (episode_id)
        """
    ).fetchall()
    return Since(n_episodes_new=n_new, n_episodes_again=n_again, n_episodes_refused=n_refused)


def _since(known: Earlier) -> datetime:
    return known.as_of - _LATE


def _load_known(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    for table, source, key in (
        ("known_episode", "episodes", "episode_id"),
        ("known_step", "steps", "inference_id"),
        ("known_feedback", "feedback", "feedback_id"),
    ):
        connection.execute(
            f"CREATE OR REPLACE TABLE {table} AS SELECT TRY_CAST({key} AS UUID) AS {key}"
            f" FROM {scan(store.parts(source))} WHERE TRY_CAST({key} AS UUID) IS NOT NULL"
        )
