"""Digest v1: one sha256 of a store's content that does not depend on parts, threads or source.

`docs/store-format.md` gives the definition in words, `tests/store/test_digest.py` again in plain Python.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa

from trajkit.schema import Metric, MetricLevel
from trajkit.store.content_hash import Element
from trajkit.store.engine import literal, parsed
from trajkit.store.layout import METRICS, TABLES, Column, columns, quoted

_LEVELS = {"episodes": MetricLevel.EPISODE, "steps": MetricLevel.INFERENCE}
_NUMBERS = ("BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMPTZ")
_SPELLED = "digested_"
"""Prefix of columns that are made for the hash alone."""
_BATCH_ROWS = 4096  # as many as a row group of a part has

ORDER = {
    "episodes": ("episode_id",),
    "steps": ("episode_id", "step_index"),
    "feedback": ("episode_id", "feedback_id"),
}
"""How the rows of a table lie in a part, and how they enter the content hash of their episode."""


def elements(table: str) -> tuple[Element, ...]:
    """The elements of a row's bytes. The metrics always have a place, measured or not."""
    return tuple(
        Element(
            _SPELLED + column.name if _is_spelled(column) else column.name, column.sql_type not in _NUMBERS
        )
        for column in TABLES[table]
        if column.is_digested
    )


def ordered_batches(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    metrics: Sequence[Metric],
    select: str,
    first_by: Sequence[str] = (),
    absent: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """The rows of a SELECT in order, as batches that also have every column in `elements`.

    Args:
        connection: Where the SELECT runs; no result of it may be open.
        table: Which table's rows they are.
        metrics: The metrics that have a column.
        select: Gives the digested columns of the table, and any others.
        first_by: Columns that come before the table's own order.
        absent: Columns of the table that the SELECT does not give: they are null.
    """
    order = ", ".join((*first_by, *ORDER[table]))
    of_hash = [column for column in TABLES[table] if column.is_digested and _is_spelled(column)]
    spelled = "".join(
        f", {_spelling(column, table, metrics)} AS {_SPELLED}{column.name}"
        for column in of_hash
        if column.name not in absent
    )
    missing = [*absent, *(_SPELLED + column.name for column in of_hash if column.name in absent)]
    # computed after the sort, which then carries less
    (statement,) = parsed(f"SELECT *{spelled} FROM ({select} ORDER BY {order}) r")
    rows = connection.sql(statement)
    for batch in rows.to_arrow_reader(_BATCH_ROWS):
        nothing = [pa.nulls(batch.num_rows)] * len(missing)
        yield pa.RecordBatch.from_arrays([*batch.columns, *nothing], [*batch.schema.names, *missing])


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


def spelled_json(name: str) -> str:
    """SQL for the canonical text of a JSON value; NULL for null.

    DuckDB's VARIANT sorts the keys of objects and drops what is only spelling: spaces, escapes, 1e2.
    """
    text = f"CAST({name} AS VARCHAR)"
    # there is one way to spell a string that needs no escape: most actions are one, and this is much quicker
    is_plain = f"""starts_with({text}, '"') AND ends_with({text}, '"') AND NOT contains({text}, '\\')"""
    spelled = f"nullif(CAST(CAST(CAST({name} AS VARIANT) AS JSON) AS VARCHAR), 'null')"
    return f"CASE WHEN {name} IS NULL THEN NULL WHEN {is_plain} THEN {text} ELSE {spelled} END"


def _is_spelled(column: Column) -> bool:
    """Whether the hash covers a canonical text of the column instead of the stored value."""
    is_free_json = column.sql_type == "JSON" and not column.is_closed
    return is_free_json or column.sql_type == METRICS or column.sql_type.endswith("[]")


def _spelling(column: Column, table: str, metrics: Sequence[Metric]) -> str:
    name = f"r.{quoted(column.name)}"
    if column.sql_type == "JSON":
        return spelled_json(name)
    if column.sql_type != METRICS:
        return f"CAST(to_json({name}) AS VARCHAR)"
    present = {column.name for column in columns(table, metrics)}
    of_level = [metric for metric in metrics if metric.level == _LEVELS[table]]
    return _metrics(of_level, name) if "metrics" in present else "CAST(NULL AS VARCHAR)"


def _metrics(metrics: Sequence[Metric], struct: str) -> str:
    """The measured metrics as an object with sorted keys, NULL when there is none."""
    fields = ", ".join(
        f"CAST(to_json({literal(metric.name)}) AS VARCHAR) || ':' || "
        f"CAST(to_json({struct}.{quoted(metric.name)}) AS VARCHAR)"
        for metric in sorted(metrics, key=lambda metric: metric.name)
    )
    return f"'{{' || nullif(concat_ws(',', {fields}), '') || '}}'"
