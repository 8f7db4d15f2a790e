"""Read the rows of a rollout from TensorZero's ClickHouse, by the ids of inferences and episodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import duckdb
import pyarrow as pa
from pydantic import TypeAdapter

from trajkit._core.secrets import Keys
from trajkit.schema import Message
from trajkit.schema.base import JsonObject
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.connect.database import connect
from trajkit.sources.tensorzero.connect.dialect import FEEDBACK, INFERENCES, columns
from trajkit.sources.tensorzero.connect.wide import system_sent
from trajkit.sources.tensorzero.export.read_sql import read_sql

_MESSAGES = TypeAdapter(tuple[Message, ...])
_TOOLS = TypeAdapter(tuple[JsonObject, ...])
_CALLS = pa.schema([("inference_id", pa.string()), ("system", pa.string()), ("input_messages", pa.string())])
_ROWS = (
    *((table, "episode_id") for table in INFERENCES.values()),
    *(FEEDBACK[kind] for kind in ("float", "boolean")),
)
"""The tables with rows of an episode, each with the column of its id."""


class Sent(NamedTuple):
    """The prompt and tools that a model was sent."""

    messages: tuple[Message, ...]
    """The rendered prompt."""
    tools: tuple[JsonObject, ...] | None = None
    """The tools it could call, those of the function and those of the request; None for none."""


def rendered_prompts(clickhouse_url: str, inference_ids: Iterable[str]) -> Mapping[str, Sent]:
    """The rendered prompt of each inference that made exactly one model call, and its tools.

    Args:
        clickhouse_url: `http://user:password@host:port/database`.
        inference_ids: The ids; those that the database does not have are left out.

    Raises:
        ServiceError: The database cannot be reached, or failed.
    """
    ids = tables.chosen(list(inference_ids))
    dialect = connect(clickhouse_url)
    system = system_sent(dialect, is_known=False)
    with contextlib.closing(dialect.connection):
        batches = list(
            dialect.stream(
                f"""
                SELECT {columns(_CALLS, "toString(inference_id)", system, "input_messages")}
                FROM ModelInference WHERE inference_id IN ({dialect.chosen})
                """,
                _CALLS,
                chosen=ids,
            )
        )
        asked = list(
            dialect.stream(
                f"""
                SELECT {columns(tables.TOOLS_BY_ID, "toString(id)", "tool_params")} FROM ChatInference
                WHERE (function_name, variant_name, episode_id) IN (
                    SELECT function_name, variant_name, episode_id FROM InferenceById
                    WHERE id_uint IN (SELECT toUInt128(toUUID(episode_id)) FROM chosen)
                ) AND id IN ({dialect.chosen}) AND tool_params <> ''
                """,
                tables.TOOLS_BY_ID,
                chosen=ids,
            )
        )
    calls = pa.Table.from_batches(batches, _CALLS)
    with duckdb.connect() as connection:
        connection.execute(read_sql("macros"))
        connection.register("calls", calls)
        connection.register("asked", pa.Table.from_batches(asked, tables.TOOLS_BY_ID))
        rows = connection.execute(
            """
            SELECT inference_id, as_prompt(any_value(system), any_value(input_messages)),
                any_value(json_extract(tool_params, '$.tools_available'))
            FROM calls LEFT JOIN asked USING (inference_id)
            WHERE coalesce(input_messages, '') <> '' GROUP BY inference_id HAVING count(*) = 1
            """
        ).fetchall()
    keys = Keys()
    return {
        inference_id: Sent(
            _MESSAGES.validate_json(keys.hide(prompt).text),
            (_TOOLS.validate_json(tools) or None) if tools else None,
        )
        for inference_id, prompt, tools in rows
    }


def stored_rows(clickhouse_url: str, episode_ids: Sequence[str]) -> Mapping[str, set[str]]:
    """The ids of all inferences of these episodes and of the metrics logged about them, by episode id.

    Args:
        clickhouse_url: `http://user:password@host:port/database`.
        episode_ids: The ids; those that the database does not have are left out.

    Raises:
        ServiceError: The database cannot be reached, or failed.
    """
    chosen, found = tables.chosen(episode_ids), dict[str, set[str]]()
    dialect = connect(clickhouse_url)
    sql = " UNION ALL ".join(
        f"SELECT {columns(tables.ROW_IDS, dialect.text(column), dialect.text('id'))}"
        f" FROM {dialect.stored[table].name} WHERE {dialect.in_chosen(column, chosen)}"
        for table, column in _ROWS
    )
    with contextlib.closing(dialect.connection):
        for batch in dialect.stream(sql, tables.ROW_IDS, chosen=chosen):
            for episode_id, row_id in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                found.setdefault(episode_id, set()).add(row_id)
    return found
