"""Read the prompts that models saw from the database, by inference id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import duckdb
import pyarrow as pa
from pydantic import TypeAdapter

from trajkit._core.secrets import without_keys
from trajkit.schema import Message
from trajkit.schema.base import JsonObject
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.connect.clickhouse.by_id import ClickHouseById
from trajkit.sources.tensorzero.export.read_sql import read_sql

_MESSAGES = TypeAdapter(tuple[Message, ...])
_TOOLS = TypeAdapter(tuple[JsonObject, ...])


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
        inference_ids: Which; those that the database does not hold are left out of the answer.

    Raises:
        ServiceError: The database cannot be reached, or failed.
    """
    database, ids = ClickHouseById(clickhouse_url), list(inference_ids)
    try:
        batches, asked = list(database.calls(ids)), list(database.tools(ids))
    finally:
        database.close()
    calls = pa.Table.from_batches(batches, tables.MODEL_INFERENCES)
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
    return {
        inference_id: Sent(
            _MESSAGES.validate_json(without_keys(prompt).text),
            (_TOOLS.validate_json(tools) or None) if tools else None,
        )
        for inference_id, prompt, tools in rows
    }
