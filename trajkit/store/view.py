"""Create the views over a store's parts: its three tables, and the steps with their full prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb

from trajkit.errors import StoreError
from trajkit.store.engine import file_literal, first_line, literal, scan
from trajkit.store.layout import CONTENT_HASH, TABLES, Column, columns, quoted
from trajkit.store.reader import Store

PROMPT = Column("prompt", "JSON", is_digested=False)
"""The last column of `steps_full`: all messages that the model saw; null if unknown."""

_STEPS_AT_ONCE = 25_000
_FILES = """
    CREATE TABLE IF NOT EXISTS trajkit_files AS
    SELECT file_name, min(stats_min_value) AS lowest, max(stats_max_value) AS highest
    FROM parquet_metadata([{files}]) WHERE path_in_schema = 'episode_id' GROUP BY file_name
    HAVING count(stats_min_value) = count(*) AND count(stats_max_value) = count(*)
"""

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


def spans(
    connection: duckdb.DuckDBPyConnection, store: Store | None = None, n_steps: int | None = None
) -> Iterator[str]:
    """Yield conditions on `episode_id` that split `steps` into spans of a bounded number of rows.

    Prompts are many times as long as their stored parts: code that needs all prompts reads them span by span.
    A span has whole episodes.

    Args:
        connection: Has the views of a store.
        store: If given, the views read only the files of the current span (`narrow_views`), and all files
            after the last one.
        n_steps: About how many rows a span has; None for the usual number.
    """
    found = connection.execute(
        "SELECT min(episode_id), max(episode_id) FROM (SELECT episode_id, (sum(n) OVER (ORDER BY "
        f"episode_id) - n) // {n_steps or _STEPS_AT_ONCE} AS span FROM (SELECT episode_id, count(*) AS n "
        "FROM steps WHERE episode_id IS NOT NULL GROUP BY episode_id)) GROUP BY span ORDER BY span"
    ).fetchall()
    for lowest, highest in found:
        if store is not None:
            narrow_views(connection, store, lowest, highest)
        yield f"episode_id BETWEEN {literal(lowest)} AND {literal(highest)}"
    if store is not None:
        create_views(connection, store)


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
        _create_view(connection, store, table, store.parts(table))
    connection.execute(f"CREATE OR REPLACE VIEW steps_full AS {full_steps('steps')}")


def narrow_views(connection: duckdb.DuckDBPyConnection, store: Store, lowest: str, highest: str) -> None:
    """Let the views read only the files that may hold episodes of a span; `create_views` undoes it.

    Args:
        connection: Has the views.
        store: The store of the views.
        lowest: The first `episode_id` of the span.
        highest: The last one.
    """
    if len(store.parts("steps")) > 1:
        for table, paths in parts_between(connection, store, lowest, highest).items():
            _create_view(connection, store, table, paths)


def parts_between(
    connection: duckdb.DuckDBPyConnection, store: Store, lowest: str, highest: str
) -> dict[str, Sequence[Path]]:
    """Return the files of each table that may hold episodes of a span; at least one.

    A query opens all files that it names. Opening 200 files takes longer than reading the rows of one.
    """
    paths: dict[str, Sequence[Path]] = {table: store.parts(table) for table in TABLES}
    if len(paths["steps"]) == 1:
        return paths
    every = ", ".join(file_literal(path) for table in TABLES for path in paths[table])
    connection.execute(_FILES.format(files=every))
    found = connection.execute(
        "SELECT file_name FROM trajkit_files WHERE lowest > ? OR highest < ?", [highest, lowest]
    ).fetchall()
    others = {name for (name,) in found}
    return {
        table: [path for path in paths[table] if str(path) not in others] or paths[table][:1]
        for table in TABLES
    }


def rows_of(store: Store, table: str, paths: Sequence[Path]) -> str:
    """Return a SELECT of a table from some of its files."""
    names = ", ".join(
        f"CAST({quoted(column.name)} AS {column.sql_type}) AS {quoted(column.name)}"
        for column in columns_of(store, table)
    )
    return f"SELECT {names} FROM {scan(list(paths))}"


def _create_view(
    connection: duckdb.DuckDBPyConnection, store: Store, table: str, paths: Sequence[Path]
) -> None:
    try:
        connection.execute(f"CREATE OR REPLACE VIEW {table} AS {rows_of(store, table, paths)}")
    except duckdb.Error as error:
        raise StoreError(f"{store.path} cannot be read: {first_line(error)}") from error


def create_empty(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Create empty tables of the same names, to bind an expression without reading anything."""
    for table in TABLES:
        names = ", ".join(f"{quoted(column.name)} {column.sql_type}" for column in columns_of(store, table))
        connection.execute(f"CREATE TABLE {table} ({names})")
    connection.execute(f"CREATE VIEW steps_full AS {full_steps('steps')}")
