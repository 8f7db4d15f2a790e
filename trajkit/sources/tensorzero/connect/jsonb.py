"""Rewrite JSON from Postgres in the spelling that TensorZero writes.

JSONB sorts the keys of objects by their length and puts spaces after colons and commas. A prompt that is only
text passes through an export unchanged, so its spelling must be the same from every database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import duckdb
import pyarrow as pa

from trajkit.store.engine import literal
from trajkit.store.layout import quoted

_TEXT_BLOCK = r'\{"text":("(?:[^"\\]|\\.)*"),"type":"text"\}'
_IN_ORDER = r'{"type":"text","text":\1}'


def compact(column: str) -> str:
    """SQL (DuckDB) for JSON without the spaces."""
    return f"CAST(json({column}) AS VARCHAR)"


def messages(column: str) -> str:
    """SQL (DuckDB) for messages, or blocks: no spaces, and the keys of text blocks in TensorZero's order.

    A quote inside a JSON text is escaped: so the beginning of the pattern is found at objects only.
    """
    return f"regexp_replace({compact(column)}, {literal(_TEXT_BLOCK)}, {literal(_IN_ORDER)}, 'g')"


def tags(column: str) -> str:
    """SQL (DuckDB) for an object of texts as a map."""
    return f"CAST(CAST({column} AS JSON) AS MAP(VARCHAR, VARCHAR))"


SPELLED = {
    **dict.fromkeys(("input", "output", "input_messages"), messages),
    **dict.fromkeys(("auxiliary_content", "dynamic_tools", "dynamic_provider_tools", "tags"), compact),
}
"""The SQL that spells each column of `tables.INFERENCES` and `tables.MODEL_INFERENCES` as TensorZero does."""


def respelled(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, columns: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Rewrite some columns.

    Args:
        batches: Have the schema's columns, except for the types of the rewritten ones.
        schema: The schema of the result.
        columns: SQL by name of the column, of the functions above.
    """
    selected = ", ".join(f"{columns.get(name, quoted(name))} AS {quoted(name)}" for name in schema.names)
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")  # two streams run side by side
        for batch in batches:
            connection.register("batch", pa.Table.from_batches([batch]))
            made = connection.sql(f"SELECT {selected} FROM batch").to_arrow_table()
            yield from made.cast(schema).combine_chunks().to_batches()
