"""Create the views over a store's parts: its three tables, and the steps with their full prompts."""

from __future__ import annotations

import duckdb

from trajkit.errors import StoreError
from trajkit.store.engine import first_line, literal, scan
from trajkit.store.layout import CONTENT_HASH, TABLES, Column, columns, quoted
from trajkit.store.reader import Store

PROMPT = Column("prompt", "JSON", is_digested=False)
"""The last column of `steps_full`: all messages that the model saw; null if unknown."""

_STEPS_AT_ONCE = 25_000

# A message written at step s and position j of the prompt is in every later prompt before the next step u > s
# that keeps no more than j messages. Steps that keep nothing need no join. A run of steps that keep
# something, with the step that it starts from, is a segment, and a message occurs only in its segment.
_FULL_STEPS = """
    WITH given AS (SELECT * FROM {steps}), chain AS (
        SELECT episode_id, step_index, n_prompt_kept, messages, completion,
            sum(CAST(n_prompt_kept = 0 AS BIGINT))
                OVER (PARTITION BY episode_id ORDER BY step_index) AS segment
        FROM given SEMI JOIN (SELECT DISTINCT episode_id FROM given WHERE n_prompt_kept > 0)
            USING (episode_id)
    ), written AS (
        SELECT episode_id, segment, step_index, n_prompt_kept, list_transform(
            list_concat(CAST(messages AS JSON[]), CASE WHEN completion IS NULL THEN [] ELSE [completion] END),
            lambda m, i: {{
                'step': step_index, 'position': n_prompt_kept + i - 1, 'message': CAST(m AS VARCHAR),
                'is_answer': i > json_array_length(messages)
            }}) AS messages
        FROM chain
    ), segments AS (
        SELECT episode_id, segment, flatten(list(messages ORDER BY step_index)) AS written,
            list({{'step': step_index, 'n_kept': n_prompt_kept}} ORDER BY step_index) AS cuts
        FROM written GROUP BY episode_id, segment HAVING count(*) > 1
    ), living AS (
        SELECT episode_id, segment, list_transform(written, lambda w: {{
            'step': w.step, 'is_answer': w.is_answer, 'message': w.message,
            'until': list_min([c.step for c in cuts if c.step > w.step AND c.n_kept <= w.position])
        }}) AS messages
        FROM segments
    ), rebuilt AS (
        SELECT chain.episode_id, chain.step_index, CAST('[' || array_to_string([
            w.message for w in living.messages
            if w.step <= chain.step_index AND (w.until IS NULL OR w.until > chain.step_index)
                AND NOT (w.is_answer AND w.step = chain.step_index)
        ], ',') || ']' AS JSON) AS prompt
        FROM chain JOIN living USING (episode_id, segment) WHERE chain.n_prompt_kept > 0
    )
    SELECT *, messages AS prompt FROM given WHERE n_prompt_kept = 0
    UNION ALL
    SELECT given.*, rebuilt.prompt FROM given JOIN rebuilt USING (episode_id, step_index)
    WHERE n_prompt_kept > 0
"""


def full_steps(steps: str) -> str:
    """Return a SELECT of `steps`, which has whole episodes, with the column `prompt`; in no order."""
    return _FULL_STEPS.format(steps=steps)


def spans(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Return conditions on `episode_id` that split `steps` into spans of a bounded number of rows.

    Prompts are many times as long as their stored parts: code that needs all prompts reads them span by span.
    A span has whole episodes.
    """
    found = connection.execute(
        "SELECT min(episode_id), max(episode_id) FROM (SELECT episode_id, "
        f"(sum(n) OVER (ORDER BY episode_id) - n) // {_STEPS_AT_ONCE} AS span FROM (SELECT episode_id, "
        "count(*) AS n FROM steps WHERE episode_id IS NOT NULL GROUP BY episode_id)) "
        "GROUP BY span ORDER BY span"
    ).fetchall()
    return [f"episode_id BETWEEN {literal(lowest)} AND {literal(highest)}" for lowest, highest in found]


def columns_of(store: Store, table: str) -> tuple[Column, ...]:
    """Return the columns of a table or view of a store, in order."""
    if table == "steps_full":
        return (*columns("steps", store.manifest.metrics), PROMPT)
    extra = (CONTENT_HASH,) if table == "episodes" else ()
    return (*columns(table, store.manifest.metrics), *extra)


def create_views(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Create `episodes`, `steps`, `feedback` and `steps_full` in a connection; only the schemas are read.

    Raises:
        StoreError: A part is not Parquet, or lacks a column.
    """
    for table in TABLES:
        names = ", ".join(
            f"CAST({quoted(column.name)} AS {column.sql_type}) AS {quoted(column.name)}"
            for column in columns_of(store, table)
        )
        try:
            connection.execute(f"CREATE VIEW {table} AS SELECT {names} FROM {scan(store.parts(table))}")
        except duckdb.Error as error:
            raise StoreError(f"{store.path} cannot be read: {first_line(error)}") from error
    connection.execute(f"CREATE VIEW steps_full AS {full_steps('steps')}")


def create_empty(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Create empty tables of the same names, to bind an expression without reading anything."""
    for table in TABLES:
        names = ", ".join(f"{quoted(column.name)} {column.sql_type}" for column in columns_of(store, table))
        connection.execute(f"CREATE TABLE {table} ({names})")
    connection.execute(f"CREATE VIEW steps_full AS {full_steps('steps')}")
