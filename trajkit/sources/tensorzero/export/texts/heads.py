"""Skip the part of a long prompt or input that an earlier row already has.

The prompts of a conversation repeat all earlier messages, and the input repeats the prompt: most of a
database of long conversations is repetition. A database that supports it (`Heads`) leaves out the part
that the prompt of the step before should have, and sends its hash. The same holds for inputs, of which only
the last message is read (`observed.py`). A few episodes are tried to see whether it helps; `headless.py`
does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import duckdb
import pyarrow as pa

from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.connect.clickhouse.heads import Heads
from trajkit.sources.tensorzero.connect.streams import load
from trajkit.sources.tensorzero.connect.tables import pc
from trajkit.sources.tensorzero.export.read_sql import read_sql
from trajkit.sources.tensorzero.export.texts.late import input_prefixes

LONG_BYTES = 8_000
"""Bytes of text per step from which it is worth asking how long the prompts are."""
_LEAST_SAVED = 0.5
"""Share of the prompts' bytes that must be saved, and of the sampled rows whose head must be the one it
should be."""
_N_SAMPLED = 20
"""Episodes that are tried first: an agent may rewrite its history at each step."""
_MOST_HEADS = 2_000_000
"""Steps of one export that it is done for: 50 bytes travel with the query for each. Shards have fewer."""

_HEADS = """
    CREATE OR REPLACE TEMP TABLE head AS
    SELECT episode_id, slot, inference_id, n_before - 1 AS head_bytes FROM (
        SELECT c.episode_id, c.slot, c.inference_id, n_bytes,
            CASE WHEN lag(step_index) OVER turns = step_index - 1 THEN lag(n_bytes) OVER turns END AS n_before
        FROM chosen_step c JOIN (
            SELECT inference_id, any_value(n_bytes) AS n_bytes
            FROM prompt_bytes GROUP BY ALL HAVING count(*) = 1
        ) USING (inference_id)
        WINDOW turns AS (PARTITION BY episode_id ORDER BY step_index)
    )
    WHERE n_before > 2 AND n_before < n_bytes
"""

AsText = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Records the rows of a stream that are not UTF-8, by inference."""

OF_CALL = ("inference_id", "n_bytes", "whole_hash", "head_bytes", "head_hash", "system")
OF_INPUT = ("inference_id", "input", "said_bytes", "said_hash", "is_short")
"""Columns for the proof of heads, of `tables.HEADLESS_CALLS` and `tables.SHORT_INFERENCES`."""


class LeftOut(NamedTuple):
    """The parts of texts that the database need not send."""

    heads: pa.Table
    """`tables.HEADS`."""
    are_inputs_short: bool
    """Whether inputs mostly repeat the prompts."""
    n_bytes: float
    """Approximate size of the omitted text."""


class Wanted(NamedTuple):
    """Ids of inferences whose prompt or input is needed whole."""

    prompts: list[str]
    inputs: list[str]


def what_to_leave_out(
    connection: duckdb.DuckDBPyConnection,
    heads: Heads,
    chosen: pa.Table | None,
    request: ExportRequest,
    as_text: AsText,
) -> LeftOut | None:
    """Decide which parts of long prompts the database need not send; None when too little.

    Args:
        connection: Where `chosen_step` is.
        heads: The database.
        chosen: The episodes that will be exported; None for all.
        request: With an as-of time.
        as_text: Records texts that are not UTF-8.
    """
    load(
        connection,
        "prompt_bytes",
        heads.prompt_bytes(chosen, request),
        tables.PROMPT_BYTES,
        "* REPLACE (inference_id::UUID AS inference_id)",
    )
    connection.execute(_HEADS)
    ((n_heads, saved, whole),) = connection.execute(
        "SELECT count(*), sum(head_bytes), (SELECT sum(n_bytes) FROM prompt_bytes) FROM head"
    ).fetchall()
    connection.execute("DROP TABLE prompt_bytes")
    found = None
    if 0 < n_heads <= _MOST_HEADS and saved / whole >= _LEAST_SAVED:
        found = _if_it_holds(connection, heads, request, as_text, int(saved))
    connection.execute("DROP TABLE head")
    return found


def _if_it_holds(
    connection: duckdb.DuckDBPyConnection,
    heads: Heads,
    request: ExportRequest,
    as_text: AsText,
    saved: int,
) -> LeftOut | None:
    """Return the contents of the table `head`, if they are right for a few episodes."""
    # a slot is a hash: the episodes of the smallest slots are a random sample
    sampled = connection.sql(
        f"SELECT DISTINCT slot, episode_id::VARCHAR AS episode_id FROM head ORDER BY ALL LIMIT {_N_SAMPLED}"
    ).to_arrow_table()
    last_slot = pc.max(sampled.column("slot")).as_py()
    few = sampled.select(["episode_id"]).cast(tables.CHOSEN)
    of_few = _heads(connection, f"slot <= {last_slot}")
    calls = as_text(heads.model_inferences(few, 1, request, of_few, are_few=True))
    inferences = as_text(heads.inferences(few, 1, request))
    of_prompts, of_inputs = _shares(connection, calls, inferences, last_slot)
    if of_prompts < _LEAST_SAVED:
        return None
    are_inputs_short = of_inputs >= _LEAST_SAVED
    share = of_prompts + (of_inputs if are_inputs_short else 0)
    return LeftOut(_heads(connection, "true"), are_inputs_short, saved * max(share, 0))


def _heads(connection: duckdb.DuckDBPyConnection, condition: str) -> pa.Table:
    found = connection.sql(
        f"SELECT inference_id::VARCHAR AS inference_id, head_bytes FROM head WHERE {condition}"
    )
    return cast("pa.Table", found.to_arrow_table().cast(tables.HEADS))


def _shares(
    connection: duckdb.DuckDBPyConnection,
    model_inferences: Iterator[pa.RecordBatch],
    short_inferences: Iterator[pa.RecordBatch],
    last_slot: int,
) -> tuple[float, float]:
    """The shares of headless prompts and of short inputs that need not be fetched whole."""
    calls = _narrow(model_inferences, tables.HEADLESS_CALLS, OF_CALL)
    inferences = _narrow(short_inferences, tables.SHORT_INFERENCES, OF_INPUT)
    is_headless = pc.is_valid(calls.column("head_bytes"))
    calls = calls.append_column("is_headless", is_headless)
    whole = wanted(connection, calls, inferences, (0, last_slot), {})
    n_headless = pc.sum(is_headless).as_py() or 0
    n_short = pc.sum(inferences.column("is_short")).as_py() or 0
    return (
        1 - len(whole.prompts) / n_headless if n_headless else 0.0,
        1 - len(whole.inputs) / n_short if n_short else 0.0,
    )


def _narrow(batches: Iterator[pa.RecordBatch], schema: pa.Schema, names: tuple[str, ...]) -> pa.Table:
    """Some columns of a stream; the others may be long, and are freed batch by batch."""
    fields = pa.schema([schema.field(schema.get_field_index(name)) for name in names])
    return pa.Table.from_batches((batch.select(list(names)) for batch in batches), fields)


def wanted(
    connection: duckdb.DuckDBPyConnection,
    calls: pa.Table,
    inferences: pa.Table,
    slots: tuple[int, int],
    broken: Mapping[str, str],
) -> Wanted:
    """The inferences whose prompt or input must be fetched whole.

    Args:
        connection: Where `chosen_step` is.
        calls: Model calls of whole episodes (`OF_CALL` and `is_headless`).
        inferences: Their inferences (`OF_INPUT`).
        slots: The first and the last slot of the episodes.
        broken: Inferences with texts that cannot be read; all of their episodes is wanted.
    """
    systems: Any = calls.column("system").combine_chunks().dictionary_encode()
    texts = systems.dictionary.to_pylist()
    # a null is a value here, like any other
    numbers = systems.indices.fill_null(len(texts)).cast(pa.int64())
    prefixes = [prefix.decode() for prefix in input_prefixes(texts)]
    given = {
        "known_call": calls.drop_columns(["system"]).append_column("system_number", numbers),
        "known_input": inferences,
        "prefix": pa.table({"system_number": range(len(prefixes)), "prefix": prefixes}),
        "broken": pa.table({"inference_id": pa.array(list(broken), pa.string())}),
    }
    for name, table in given.items():
        connection.register(name, table)
    connection.execute(f"SET VARIABLE first_slot = {slots[0]}; SET VARIABLE last_slot = {slots[1]}")
    connection.execute(read_sql("heads"))
    for name in given:
        connection.unregister(name)
    found = connection.sql(
        "SELECT inference_id::VARCHAR AS inference_id, is_prompt_wanted, is_input_wanted FROM headless"
        " WHERE is_prompt_wanted OR is_input_wanted"
    ).to_arrow_table()
    return Wanted(*(ids_of(found.filter(found.column(f"is_{what}_wanted"))) for what in ("prompt", "input")))


def ids_of(rows: pa.Table) -> list[str]:
    """The inferences of some rows."""
    return cast("list[str]", rows.column("inference_id").to_pylist())
