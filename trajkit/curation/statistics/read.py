"""Read the columns that statistics need from one or several stores, as values and their counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import numpy as np

from trajkit.curation.keys import group_text
from trajkit.curation.statistics.intervals import Values
from trajkit.environments.guard import RETURN_NAME
from trajkit.errors import QueryError
from trajkit.schema import FeedbackKind, MetricLevel
from trajkit.store.engine import literal
from trajkit.store.layout import quoted
from trajkit.store.reader import Store
from trajkit.store.view import create_views, full_steps, spans

TOTAL_REWARD = "total_reward"

DIMENSIONS = {
    "all": "'all'",
    "task": "task_name",
    "variant": "unnest(CASE WHEN len(variant_names) > 0 THEN variant_names ELSE [NULL] END)",
    "purpose": "purpose",
    "split": "split",
}
"""The kinds of groups, as SQL over `e`."""
OWN = "own"
"""The column of `e` with the requested groups."""

_ACTION = """coalesce(action_executed, CASE json_type(action) WHEN 'NULL' THEN NULL
    WHEN 'VARCHAR' THEN action->>'$' ELSE CAST(action AS VARCHAR) END)"""

# for tool calls the names: their arguments rarely repeat
_KIND = f"""CASE WHEN action_executed IS NULL AND json_type(action) = 'ARRAY'
    THEN array_to_string(json_extract_string(action, '$[*].name'), ' and ') ELSE {_ACTION} END"""

# why a step is in no row of a training file, in the words of `trajkit convert`
_NOT_LEARNED = """CASE
    WHEN purpose = 'eval' THEN 'evaluation'
    WHEN loss_weight <= 0 THEN coalesce(mask_reason,
        CASE WHEN loss_weight < 0 THEN 'negative weight' ELSE 'weight 0' END)
    WHEN completion IS NULL OR CAST(completion AS VARCHAR) = 'null' THEN 'no answer'
    WHEN messages IS NULL OR CAST(messages AS VARCHAR) = 'null' THEN 'prompt unknown' END"""

_EPISODES = """
    SELECT {number} AS store, {split} AS split, episode_id, env_id, task, seed, initial_state_hash, purpose,
        CASE WHEN env_id IS NULL THEN task ELSE concat_ws('/', env_id, task) END AS task_name,
        variant_names, n_steps, outcome, {own} AS own, {score} AS score, n_input_tokens, n_output_tokens
    FROM {schema}.episodes
"""
_STEPS = f"""
    SELECT {{number}} AS store, t.episode_id, step_index, {_ACTION} AS action, {_KIND} AS kind,
        action_valid, t.n_input_tokens, t.n_output_tokens, loss_weight, {_NOT_LEARNED} AS reason
    FROM {{schema}}.steps t JOIN (SELECT episode_id, purpose FROM {{schema}}.episodes) USING (episode_id)
"""
_ANSWERS = """
    SELECT hash(CAST(prompt AS VARCHAR)) AS prompt, hash(CAST(completion AS VARCHAR)) AS answer
    FROM ({steps})
    WHERE CAST(prompt AS VARCHAR) <> 'null' AND CAST(completion AS VARCHAR) <> 'null'
"""


def read(
    connection: duckdb.DuckDBPyConnection, stores: Sequence[Store], score: str | None, by: Sequence[str] = ()
) -> None:
    """Create the tables `e` (episodes), `s` (steps) and `answers`, each over all the stores.

    Args:
        connection: An empty database.
        stores: The stores; the same id may be in several.
        score: The score, from `score_name`.
        by: Columns, metrics or `tags.NAME` of the requested groups.
    """
    selects: dict[str, list[str]] = {"e": [], "s": []}
    connection.execute("CREATE TABLE answers (prompt UBIGINT, answer UBIGINT)")
    for number, store in enumerate(stores):
        schema = f"store{number}"
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"USE {schema}")
        create_views(connection, store)
        own = group_text(connection, store, by) if by else "CAST(NULL AS VARCHAR)"
        for span in spans(connection, store):
            steps = full_steps(f"(SELECT * FROM steps WHERE {span})")
            connection.execute(f"INSERT INTO main.answers {_ANSWERS.format(steps=steps)}")
        connection.execute("USE main")
        values = {
            "number": number,
            "schema": schema,
            "split": "CAST(NULL AS VARCHAR)"
            if store.manifest.split is None
            else literal(store.manifest.split),
            "score": score_sql(store, score),
            "own": own,
        }
        for name, text in (("e", _EPISODES), ("s", _STEPS)):
            selects[name].append(text.format(**values))
    for name, parts in selects.items():
        connection.execute(f"CREATE TABLE {name} AS {' UNION ALL '.join(parts)}")


def score_name(stores: Sequence[Store], asked: str | None) -> str:
    """Return the score: the given one, else `episode_return`, else `total_reward`.

    Raises:
        QueryError: None of the stores has it.
    """
    known = {m.name for store in stores for m in store.manifest.metrics if m.level == "episode"}
    if asked is None:
        return RETURN_NAME if RETURN_NAME in known else TOTAL_REWARD
    if asked not in known and asked != TOTAL_REWARD:
        raise QueryError(
            f"no metric {asked!r} of episodes in {stores[0].path}",
            hint=f"there are: {', '.join([*sorted(known), TOTAL_REWARD])}",
        )
    return asked


def score_sql(store: Store, name: str | None) -> str:
    """Return the score of an episode in SQL, as a DOUBLE; null if the store does not have the metric."""
    if name == TOTAL_REWARD:
        return TOTAL_REWARD
    has_it = any(m.name == name and m.level == "episode" for m in store.manifest.metrics)
    return f"CAST(metrics.{quoted(str(name))} AS DOUBLE)" if has_it else "CAST(NULL AS DOUBLE)"


def metric_values(
    connection: duckdb.DuckDBPyConnection, stores: Sequence[Store]
) -> Iterator[tuple[str, MetricLevel, bool, Values]]:
    """Yield name, level, whether it is boolean in all stores, and the values of each metric."""
    found: dict[tuple[MetricLevel, str], list[tuple[int, bool]]] = {}
    for number, store in enumerate(stores):
        for metric in store.manifest.metrics:
            is_share = metric.kind == FeedbackKind.BOOLEAN
            found.setdefault((metric.level, metric.name), []).append((number, is_share))
    for (level, name), places in sorted(found.items()):
        table = "episodes" if level == MetricLevel.EPISODE else "steps"
        values = " UNION ALL ".join(
            f"SELECT CAST(metrics.{quoted(name)} AS DOUBLE) FROM store{number}.{table}"
            for number, _ in places
        )
        yield name, level, all(is_share for _, is_share in places), values_of(connection, values)


def grouped_values(
    connection: duckdb.DuckDBPyConnection, dimension: str, measure: str
) -> Iterator[tuple[str | None, Values]]:
    """Yield the values of a measure in each group that has any, by name.

    Args:
        connection: The connection that `read` got.
        dimension: SQL over `e` of the group's name.
        measure: A column of `e`.
    """
    found = connection.execute(
        "SELECT name, list(value ORDER BY value), list(times ORDER BY value) FROM ("
        "SELECT name, CAST(value AS DOUBLE) AS value, count(*) AS times FROM "
        f"(SELECT {dimension} AS name, {measure} AS value FROM e) WHERE value IS NOT NULL GROUP BY ALL"
        ") GROUP BY name ORDER BY name"
    ).fetchall()
    for name, value, times in found:
        yield name, Values(np.array(value, dtype=np.float64), np.array(times, dtype=np.int64))


def values_of(connection: duckdb.DuckDBPyConnection, sql: str) -> Values:
    """Return the distinct values of a SELECT with one column, without nulls."""
    found = connection.execute(
        f"SELECT CAST(value AS DOUBLE) AS value, count(*) AS times FROM ({sql}) t(value) "
        "WHERE value IS NOT NULL GROUP BY ALL ORDER BY ALL"
    ).fetchnumpy()
    return Values(np.asarray(found["value"], dtype=np.float64), np.asarray(found["times"], dtype=np.int64))
