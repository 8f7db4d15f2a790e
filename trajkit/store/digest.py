"""Digest v1: what a store holds as one sha256, whatever its parts, threads or source; as SQL for DuckDB.

`docs/store-format.md` gives the definition in words, `tests/store/test_digest.py` again in plain Python.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import duckdb

from trajkit.schema import Metric, MetricLevel
from trajkit.store.engine import literal
from trajkit.store.layout import TABLES, Column, columns, quoted

_LEVELS = {"episodes": MetricLevel.EPISODE, "steps": MetricLevel.INFERENCE}


def content_hashes(metrics: Sequence[Metric], *, episodes: str, steps: str, feedback: str) -> str:
    """A SELECT of every row of `episodes` with its `content_hash`.

    Args:
        metrics: The metrics that have a column in these relations.
        episodes: Relation with the columns of the table, in SQL.
        steps: The same for steps.
        feedback: The same for feedback.
    """
    return f"""
        WITH step_rows AS ({_hash_lists("steps", metrics, steps, key="step_index")}),
             feedback_rows AS ({_hash_lists("feedback", metrics, feedback, key="feedback_id")})
        SELECT e.*, {
        _sha256(
            [
                *_values("episodes", metrics, "e"),
                *(
                    f"CAST(to_json(coalesce({rows}.hashes, CAST([] AS VARCHAR[]))) AS VARCHAR)"
                    for rows in ("step_rows", "feedback_rows")
                ),
            ]
        )
    } AS content_hash
        FROM {episodes} AS e
        LEFT JOIN step_rows ON step_rows.episode_id = e.episode_id
        LEFT JOIN feedback_rows ON feedback_rows.episode_id = e.episode_id"""


def store_digest(connection: duckdb.DuckDBPyConnection, episodes: str) -> str:
    """The digest of a store from the `episode_id` and `content_hash` of its episodes.

    The lines are sorted by DuckDB and hashed as they come, so memory does not grow with them.
    """
    digest = hashlib.sha256()
    result = connection.execute(
        f"SELECT episode_id || ':' || content_hash || chr(10) AS line FROM {episodes} ORDER BY line"
    )
    while lines := result.fetchmany(10_000):
        digest.update("".join(line for (line,) in lines).encode("utf-8"))
    return digest.hexdigest()


def _hash_lists(table: str, metrics: Sequence[Metric], relation: str, *, key: str) -> str:
    """Per episode, the hashes of its rows in order; rows of equal keys in the order of their hashes."""
    hashed = _sha256(_values(table, metrics, "r"))
    return (
        "SELECT episode_id, list(h ORDER BY k, h) AS hashes "
        f"FROM (SELECT episode_id, {quoted(key)} AS k, {hashed} AS h FROM {relation} AS r) "
        "GROUP BY episode_id"
    )


def _sha256(values: Sequence[str]) -> str:
    return f"sha256('[' || concat_ws(',', {', '.join(values)}) || ']')"


def _values(table: str, metrics: Sequence[Metric], alias: str) -> list[str]:
    """One SQL text per digested column, each canonical JSON and never NULL.

    The metrics always take a place, so that a store without any metric agrees with one that has some.
    """
    present = {column.name for column in columns(table, metrics)}
    values = []
    for column in TABLES[table]:
        if not column.is_digested:
            continue
        if column.name == "metrics":
            level = _LEVELS[table]
            values.append(
                _metrics([m for m in metrics if m.level == level], alias) if "metrics" in present else "'{}'"
            )
        else:
            values.append(f"coalesce({_canonical(column, alias)}, 'null')")
    return values


def _canonical(column: Column, alias: str) -> str:
    name = f"{alias}.{quoted(column.name)}"
    match column.sql_type:
        case "TIMESTAMPTZ":
            return f"CAST(epoch_us({name}) AS VARCHAR)"
        case "JSON":
            # DuckDB's VARIANT sorts the keys of objects and drops what is only spelling: spaces, escapes, 1e2
            return f"CAST(CAST(CAST({name} AS VARIANT) AS JSON) AS VARCHAR)"
        case _:
            return f"CAST(to_json({name}) AS VARCHAR)"


def _metrics(metrics: Sequence[Metric], alias: str) -> str:
    """The measured metrics as an object with sorted keys; concat_ws leaves the NULLs out."""
    fields = ", ".join(
        f"CAST(to_json({literal(metric.name)}) AS VARCHAR) || ':' || "
        f"CAST(to_json({alias}.metrics.{quoted(metric.name)}) AS VARCHAR)"
        for metric in sorted(metrics, key=lambda metric: metric.name)
    )
    return f"'{{' || concat_ws(',', {fields}) || '}}'"
