from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sources.row_database import spelled
from tests.sources.test_jsonb import TEXTS
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.export.read_sql import read_sql
from trajkit.sources.tensorzero.export.spool import Group, Spool
from trajkit.sources.tensorzero.export.texts.late import CALL_ROW, INPUT_ROW, described, late_texts

BLOCKS = st.builds(lambda text: {"type": "text", "text": text}, TEXTS) | st.builds(
    lambda text: {"type": "raw_text", "value": text}, TEXTS
)
MESSAGES = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "assistant"]),
        st.lists(BLOCKS, min_size=1, max_size=3),
    ),
    max_size=3,
)
CALLS = st.lists(st.tuples(st.none() | TEXTS, MESSAGES), min_size=1, max_size=5)


def prompt_of(system: str | None, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The prompt by the definition: the system text first, every block as a text block."""
    first = [] if system is None else [{"role": "system", "content": [{"type": "text", "text": system}]}]
    rest = [
        {
            "role": message["role"],
            "content": [
                {"type": "text", "text": block.get("text", block.get("value"))}
                for block in message["content"]
            ],
        }
        for message in messages
    ]
    return first + rest


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the macros of an export."""
    with duckdb.connect() as opened:
        opened.execute(read_sql("macros"))
        yield opened


@pytest.mark.full
@settings(max_examples=8, deadline=None)
@given(calls=CALLS)
def test_prompts_past_the_database_are_those_that_sql_makes(
    connection: duckdb.DuckDBPyConnection, calls: list[tuple[str | None, list[dict[str, Any]]]]
) -> None:
    rows = [
        {"inference_id": str(n), "bucket": n % 2, "system": system, "input_messages": spelled(messages)}
        for n, (system, messages) in enumerate(calls)
    ]
    described_rows = described(pa.RecordBatch.from_pylist(rows, schema=tables.MODEL_INFERENCES))
    inferences = pa.RecordBatch.from_pylist(
        [
            {"inference_id": row["inference_id"], "bucket": row["bucket"], "input": f'"{n}"'}
            for n, row in enumerate(rows)
        ],
        schema=tables.INFERENCES,
    )
    with tempfile.TemporaryDirectory() as folder:
        call_group = spooled(Path(folder), "call", described_rows, CALL_ROW)
        late = late_texts(spooled(Path(folder), "inference", inferences, INPUT_ROW), call_group)
        table = call_group.table(["inference_id", "bucket", "system", "input_messages", "is_plain"])
        connection.register("calls", table)
        expected = connection.execute(
            "SELECT json(as_prompt(system, input_messages))::VARCHAR FROM calls ORDER BY call_row"
        ).fetchall()
        ordered = connection.sql(
            """
            SELECT bucket, calls.call_row AS input_row, calls.call_row AS sent_row,
                CASE WHEN is_plain THEN calls.call_row END AS call_row,
                CASE WHEN NOT is_plain THEN json(as_prompt(system, input_messages)) END AS messages
            FROM calls ORDER BY bucket, calls.call_row DESC
            """
        )
        batch = ordered.to_arrow_table().combine_chunks().to_batches()[0]
        made = late.fill(batch)
    order = batch.column("input_row").to_pylist()
    ids = [int(table.column("inference_id")[row].as_py()) for row in order]
    assert made["input"].to_pylist() == [f'"{n}"' for n in ids]
    assert made["messages"].to_pylist() == [expected[row][0] for row in order]
    assert [json.loads(text) for text in made["messages"].to_pylist()] == [prompt_of(*calls[n]) for n in ids]


def spooled(folder: Path, name: str, batch: pa.RecordBatch, row_name: str) -> Group:
    spool = Spool(folder, name, batch.schema, 2)
    spool.fill(iter([batch]))
    return Group(spool, range(2), row_name)


def test_what_passes_as_it_is_and_what_does_not() -> None:
    bodies = [
        '[{"role":"user","content":[{"type":"text","text":"a \\"type\\":\\"file\\" in quotes"}]}]',
        '[{"role":"user","content":[{"type":"file","file":{}}]}]',
        '[{"role":"user","content":[{"type":"text","text":"\\u001f"}]}]',
        '[{"role": "user", "content": [{"text": "spaced", "type": "text"}]}]',
        "[]",
        "",
        None,
    ]
    batch = pa.RecordBatch.from_pylist(
        [{"inference_id": str(n), "input_messages": body} for n, body in enumerate(bodies)],
        schema=tables.MODEL_INFERENCES,
    )
    found = described(batch)
    assert found.column("is_plain").to_pylist() == [True, False, False, False, False, False, False]
    assert found.column("has_messages").to_pylist() == [True, True, True, True, True, False, False]
