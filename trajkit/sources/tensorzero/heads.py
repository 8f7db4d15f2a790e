"""Long texts without their heads: what an earlier row has is not sent again, and proven to be the same.

The prompts of a conversation repeat all that was said, and the input repeats the prompt: a database of long
conversations is mostly that. A database that can (`tables.Heads`) leaves out what the prompt of the step
before should have, and says its hash; where that is not the hash of the prompt before, the text is brought
as a whole after all. So it is with inputs, of which only the last message is looked at (`observed.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import duckdb
import pyarrow as pa
import pyarrow.compute

from trajkit.errors import ServiceError
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero import tables
from trajkit.sources.tensorzero.late import described_again, input_prefixes
from trajkit.sources.tensorzero.read_sql import read_sql
from trajkit.sources.tensorzero.slot import N_SLOTS, slots_of
from trajkit.sources.tensorzero.spool import Group, Spool
from trajkit.sources.tensorzero.streams import load

pc: Any = pyarrow.compute  # the stubs know too few of the types that its functions take

LONG_BYTES = 8_000
"""Bytes of text per step from which it is worth asking how long the prompts are."""
_LEAST_SAVED = 0.5
"""Share of the prompts' bytes that must be saved, and of the sampled rows whose head must be the one it
should be."""
_N_SAMPLED = 20
"""Episodes that are looked at first: an agent may write its history anew each time."""

_HEADS = """
    CREATE OR REPLACE TEMP TABLE head AS
    SELECT episode_id, inference_id, n_before - 1 AS head_bytes FROM (
        SELECT c.episode_id, c.inference_id, n_bytes,
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
"""Notes the rows of a stream that are not UTF-8, by inference."""

_CALL = ("inference_id", "n_bytes", "whole_hash", "head_bytes", "head_hash", "system")
_INPUT = ("inference_id", "input", "said_bytes", "said_hash")


class LeftOut(NamedTuple):
    """What need not be sent."""

    heads: pa.Table
    """`tables.HEADS`."""
    of_inputs: bool
    """Whether inputs say what the prompts say."""
    share: float
    """Of the prompts' bytes."""


def what_to_leave_out(
    connection: duckdb.DuckDBPyConnection,
    heads: tables.Heads,
    chosen: pa.Table | None,
    request: ExportRequest,
    as_text: AsText,
) -> LeftOut | None:
    """Find out what of long prompts need not be sent; None where too little.

    Args:
        connection: Where `chosen_step` is.
        heads: The database.
        chosen: The episodes that will be brought; None for all.
        request: With an as-of time.
        as_text: Notes what is not UTF-8.
    """
    load(
        connection,
        "prompt_bytes",
        heads.prompt_bytes(chosen, request),
        tables.PROMPT_BYTES,
        "* REPLACE (inference_id::UUID AS inference_id)",
    )
    connection.execute(_HEADS)
    ((saved, whole),) = connection.execute(
        "SELECT (SELECT coalesce(sum(head_bytes), 0) FROM head), (SELECT sum(n_bytes) FROM prompt_bytes)"
    ).fetchall()
    connection.execute("DROP TABLE prompt_bytes")
    share = saved / whole if whole else 0.0
    found = _worth_it(connection, heads, request, as_text, share) if whole and share >= _LEAST_SAVED else None
    connection.execute("DROP TABLE head")
    return found


def _worth_it(
    connection: duckdb.DuckDBPyConnection,
    heads: tables.Heads,
    request: ExportRequest,
    as_text: AsText,
    share: float,
) -> LeftOut | None:
    """What the table `head` says, if it holds for a few episodes."""
    sampled = connection.sql(
        "SELECT episode_id::VARCHAR AS episode_id FROM (SELECT DISTINCT episode_id FROM head)"
        f" ORDER BY hash(episode_id) LIMIT {_N_SAMPLED}"
    ).to_arrow_table()
    connection.register("sampled", sampled)
    of_sampled = _heads(connection, "episode_id::VARCHAR IN (SELECT episode_id FROM sampled)")
    connection.unregister("sampled")
    few = sampled.cast(tables.CHOSEN)
    calls = as_text(heads.model_inferences(few, 1, request, of_sampled, are_few=True))
    prompts, inputs = _shares(connection, calls, as_text(heads.inferences(few, 1, request)))
    if prompts < _LEAST_SAVED:
        return None
    return LeftOut(_heads(connection, "true"), inputs >= _LEAST_SAVED, share)


def _heads(connection: duckdb.DuckDBPyConnection, condition: str) -> pa.Table:
    found = connection.sql(
        f"SELECT inference_id::VARCHAR AS inference_id, head_bytes FROM head WHERE {condition}"
    )
    return cast("pa.Table", found.to_arrow_table().cast(tables.HEADS))


def _shares(
    connection: duckdb.DuckDBPyConnection,
    model_inferences: Iterator[pa.RecordBatch],
    short_inferences: Iterator[pa.RecordBatch],
) -> tuple[float, float]:
    """The shares of headless prompts, and of short inputs, that need not be brought as a whole."""
    calls = pa.Table.from_batches(model_inferences, tables.HEADLESS_CALLS).select(_CALL)
    inferences = pa.Table.from_batches(short_inferences, tables.SHORT_INFERENCES).select(_INPUT)
    whole = _wanted(connection, calls, inferences, (0, N_SLOTS - 1), {})
    n_headless = pc.sum(pc.is_valid(calls.column("head_bytes"))).as_py() or 0
    n_short = pc.sum(pc.is_valid(inferences.column("said_bytes"))).as_py() or 0
    return (
        1 - len(whole.prompts) / n_headless if n_headless else 0.0,
        1 - len(whole.inputs) / n_short if n_short else 0.0,
    )


class _Wanted(NamedTuple):
    """Ids of inferences of which something is wanted as a whole."""

    prompts: list[str]
    inputs: list[str]


def _wanted(
    connection: duckdb.DuckDBPyConnection,
    calls: pa.Table,
    inferences: pa.Table,
    slots: tuple[int, int],
    broken: Mapping[str, str],
) -> _Wanted:
    systems: Any = calls.column("system").combine_chunks().dictionary_encode()
    texts = systems.dictionary.to_pylist()
    # a null is a value here, like any other
    numbers = systems.indices.fill_null(len(texts))
    prefixes = [prefix.decode() for prefix in input_prefixes(texts)]
    given = {
        "known_call": calls.drop_columns(["system"]).append_column("system_number", numbers.cast(pa.int64())),
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
    return _Wanted(*(_ids(found.filter(found.column(f"is_{what}_wanted"))) for what in ("prompt", "input")))


class Headless:
    """The rows of an export that came without their heads.

    Args:
        heads: The database.
        inferences: The inferences (`SHORT_INFERENCES`).
        calls: Their model calls (`HEADLESS_CALLS`), described.
        folder: For files.
        as_text: Notes what is not UTF-8.
    """

    def __init__(
        self, heads: tables.Heads, inferences: Spool, calls: Spool, *, folder: Any, as_text: AsText
    ) -> None:
        self._heads = heads
        self._inferences = inferences
        self._calls = calls
        self._folder = folder
        self._as_text = as_text

    def prove(self, connection: duckdb.DuckDBPyConnection, broken: Mapping[str, str]) -> None:
        """Bring what is not proven as a whole.

        Args:
            connection: Where `chosen_step` is.
            broken: Inferences with texts that cannot be read; nothing is left out of their episodes.
        """
        wanted = {}
        for number in range(self._calls.n_buckets):
            calls = Group(self._calls, [number], "row").table(_CALL)
            inferences = Group(self._inferences, [number], "row").table(_INPUT)
            slots = slots_of(number + 1, self._calls.n_buckets)
            wanted[number] = _wanted(connection, calls, inferences, slots, broken)
        self._bring(wanted)

    def make_whole(self, numbers: Sequence[int]) -> bool:
        """Bring all of some buckets as a whole; whether anything was missing."""
        wanted = {}
        for number in numbers:
            calls = Group(self._calls, [number], "row").table(["inference_id", "is_headless"])
            inferences = Group(self._inferences, [number], "row").table(["inference_id", "said_bytes"])
            wanted[number] = _Wanted(
                _ids(calls.filter(calls.column("is_headless"))),
                _ids(inferences.filter(pc.is_valid(inferences.column("said_bytes")))),
            )
        self._bring(wanted)
        return any(prompts or inputs for prompts, inputs in wanted.values())

    def _bring(self, wanted: Mapping[int, _Wanted]) -> None:
        prompts = {number: ids.prompts for number, ids in wanted.items()}
        whole = self._fetched("whole_prompt", tables.WHOLE_PROMPTS, prompts, self._heads.whole_prompts)
        for number, ids in prompts.items():
            if ids:
                self._calls.replace(number, _with_prompts(self._calls, whole, number, ids))
        inputs = {number: ids.inputs for number, ids in wanted.items()}
        whole = self._fetched("whole_input", tables.WHOLE_INPUTS, inputs, self._heads.whole_inputs)
        for number, ids in inputs.items():
            if ids:
                self._inferences.replace(number, _with_inputs(self._inferences, whole, number, ids))

    def _fetched(
        self,
        name: str,
        schema: pa.Schema,
        wanted: Mapping[int, list[str]],
        ask: Callable[[pa.Table], Iterator[pa.RecordBatch]],
    ) -> Spool:
        """The texts that are wanted, each in the bucket that wants it."""
        ids = pa.array([one for some in wanted.values() for one in some], pa.string())
        numbers = pa.array([number for number, some in wanted.items() for _ in some], pa.uint16())
        with_bucket = pa.schema([*schema, pa.field("bucket", pa.uint16())])
        spool = Spool(self._folder, name, with_bucket, self._calls.n_buckets)
        if len(ids):
            found = self._as_text(ask(pa.table({"inference_id": ids})))
            spool.fill(
                pa.RecordBatch.from_arrays(
                    [*batch.columns, numbers.take(pc.index_in(batch.column("inference_id"), value_set=ids))],
                    schema=with_bucket,
                )
                for batch in found
            )
        return spool


def _with_prompts(calls: Spool, whole: Spool, number: int, ids: list[str]) -> Iterator[pa.RecordBatch]:
    """The calls of a bucket, these with their whole prompts."""
    table, found = (_rows(spool, number) for spool in (calls, whole))
    place = pc.index_in(table.column("model_inference_id"), value_set=found.column("model_inference_id"))
    is_wanted = pc.and_(table.column("is_headless"), pc.is_in(table.column("inference_id"), pa.array(ids)))
    _refuse_gone(table.filter(pc.and_(is_wanted, pc.is_null(place))))
    texts = pc.if_else(is_wanted, found.column("input_messages").take(place), table.column("input_messages"))
    table = _set(table, "input_messages", texts)
    table = _set(table, "is_headless", pc.and_not(table.column("is_headless"), is_wanted))
    return map(described_again, table.to_batches())


def _with_inputs(inferences: Spool, whole: Spool, number: int, ids: list[str]) -> Iterator[pa.RecordBatch]:
    """The inferences of a bucket, these with their whole inputs."""
    table, found = (_rows(spool, number) for spool in (inferences, whole))
    place = pc.index_in(table.column("inference_id"), value_set=found.column("inference_id"))
    is_wanted = pc.is_in(table.column("inference_id"), pa.array(ids))
    _refuse_gone(table.filter(pc.and_(is_wanted, pc.is_null(place))))
    texts = pc.if_else(is_wanted, found.column("input").take(place), table.column("input"))
    table = _set(table, "input", texts)
    said = pc.if_else(is_wanted, pa.scalar(None, pa.int64()), table.column("said_bytes"))
    return iter(_set(table, "said_bytes", said).to_batches())


def _refuse_gone(rows: pa.Table) -> None:
    if rows.num_rows:
        raise ServiceError(
            f"{rows.num_rows:,} rows were there and are gone, such as that of inference {_ids(rows)[0]}",
            hint="the database was changed while it was read: run the export again",
        )


def _rows(spool: Spool, number: int) -> pa.Table:
    return Group(spool, [number], "row").table(spool.schema.names).drop_columns(["row"])


def _set(table: pa.Table, name: str, column: Any) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), column)


def _ids(rows: pa.Table) -> list[str]:
    return cast("list[str]", rows.column("inference_id").to_pylist())
