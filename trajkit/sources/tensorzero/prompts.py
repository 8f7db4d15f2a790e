"""The prompts that models saw, read back from the database by inference id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import duckdb
import pyarrow as pa
from pydantic import TypeAdapter

from trajkit.schema import Message
from trajkit.sources.tensorzero import tables
from trajkit.sources.tensorzero.assemble import read_sql
from trajkit.sources.tensorzero.clickhouse import ClickHouse

_MESSAGES = TypeAdapter(tuple[Message, ...])


def rendered_prompts(clickhouse_url: str, inference_ids: Iterable[str]) -> Mapping[str, tuple[Message, ...]]:
    """The rendered prompt of each inference that made exactly one model call.

    Args:
        clickhouse_url: `http://user:password@host:port/database`.
        inference_ids: Which; those that the database does not hold are left out of the answer.

    Raises:
        ServiceError: The database cannot be reached, or failed.
    """
    database = ClickHouse(clickhouse_url)
    try:
        batches = list(database.prompts(list(inference_ids)))
    finally:
        database.close()
    calls = pa.Table.from_batches(batches, tables.MODEL_INFERENCES)
    with duckdb.connect() as connection:
        connection.execute(read_sql("macros"))
        connection.register("calls", calls)
        rows = connection.execute(
            """
            SELECT inference_id, as_prompt(any_value(system), any_value(input_messages)) FROM calls
            WHERE coalesce(input_messages, '') <> '' GROUP BY inference_id HAVING count(*) = 1
            """
        ).fetchall()
    return {inference_id: _MESSAGES.validate_json(prompt) for inference_id, prompt in rows}
