"""Digest v1: what a store holds as one sha256, whatever its parts, threads or source; as SQL for DuckDB.

`docs/store-format.md` gives the definition in words, `tests/store/test_digest.py` again in plain Python.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa

from trajkit.schema import Metric, MetricLevel
from trajkit.store.content_hash import LINE
from trajkit.store.engine import literal
from trajkit.store.layout import TABLES, Column, columns, quoted
from trajkit.store.part import ROW_GROUP_ROWS

_LEVELS = {"episodes": MetricLevel.EPISODE, "steps": MetricLevel.INFERENCE}


ORDER = {
    "episodes": ("episode_id",),
    "steps": ("episode_id", "step_index"),
    "feedback": ("episode_id", "feedback_id"),
}
"""How the rows of a table lie in a part, and how they enter the content hash of their episode."""


def hashed_batches(
    connection: duckdb.DuckDBPyConnection, table: str, metrics: Sequence[Metric], select: str
) -> Iterator[pa.RecordBatch]:
    """The rows of a SELECT in order, as batches with the column `line`.

    Args:
        connection: Where the SELECT runs; no result of it may be open.
        table: Which table's rows they are.
        metrics: The metrics that have a column.
        select: Gives the digested columns of the table.
    """
    order = ", ".join(ORDER[table])
    line = row_line(table, metrics, "r")
    # the line is made above the sort, which then has half as much to carry
    rows = connection.sql(f"SELECT *, {line} AS {LINE} FROM ({select} ORDER BY {order}) r")
    yield from rows.to_arrow_reader(ROW_GROUP_ROWS)


def row_line(table: str, metrics: Sequence[Metric], alias: str) -> str:
    """SQL for the canonical line of a row: a JSON array of its digested columns, and a newline.

    Args:
        table: Which table's columns.
        metrics: The metrics that have a column.
        alias: Relation with the columns of the table.
    """
    values = _values(table, metrics, alias)
    joined = ", ',', ".join(values)
    return f"concat('[', {joined}, ']', chr(10))"


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
        case "JSON" if column.is_closed:
            # the fields' order is fixed: only the spelling (spaces, escapes) is made one, at half the cost
            return f"CAST(json({name}) AS VARCHAR)"
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
