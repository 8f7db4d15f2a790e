"""Verify rows that came without the heads of their long texts; if that fails, fetch the whole texts.

`heads.py` explains what a head is and why it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from trajkit.errors import ServiceError
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.connect.clickhouse.heads import Heads
from trajkit.sources.tensorzero.connect.slot import slots_of
from trajkit.sources.tensorzero.connect.tables import pc
from trajkit.sources.tensorzero.export.spool import Group, Spool
from trajkit.sources.tensorzero.export.texts.heads import OF_CALL, OF_INPUT, AsText, Wanted, ids_of, wanted
from trajkit.sources.tensorzero.export.texts.late import described_again
from trajkit.sources.tensorzero.export.texts.observed import OBSERVATION, Observing
from trajkit.sources.tensorzero.export.unreadable import Unreadable

_SLICE_ROWS = 256
"""Rows whose texts are replaced at a time."""


class Reading(NamedTuple):
    """Inspects texts as they arrive."""

    unreadable: Unreadable
    as_text: AsText
    observing: Observing


class _Text(NamedTuple):
    """A text that may have to be fetched whole."""

    key: str
    """Column of its id."""
    columns: tuple[str, ...]
    """Columns that are fetched with it."""
    flag: str
    """Column that marks it as shortened."""


_PROMPT = _Text("model_inference_id", ("input_messages",), "is_headless")
_INPUT = _Text("inference_id", ("input", OBSERVATION.name), "is_short")


class Headless:
    """The rows of an export whose texts came without their heads.

    Args:
        heads: The database.
        inferences: The inferences (`tables.SHORT_INFERENCES`), observed.
        calls: Their model calls (`tables.HEADLESS_CALLS`), described.
        folder: For files.
        reading: Inspects the fetched texts.
    """

    def __init__(
        self, heads: Heads, inferences: Spool, calls: Spool, *, folder: Path, reading: Reading
    ) -> None:
        self._heads = heads
        self._inferences = inferences
        self._calls = calls
        self._folder = folder
        self._reading = reading

    def prove(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Fetch whole texts if a head is not verified, and for all episodes with an unreadable text.

        Args:
            connection: Where `chosen_step` is.
        """
        n_broken = -1
        while n_broken < len(self._reading.unreadable.reasons):
            # a fetched text may be unreadable, and later prompts may repeat it
            broken = dict(self._reading.unreadable.reasons)
            n_broken = len(broken)
            self._bring(
                {number: self._wanted(connection, number, broken) for number in range(self._calls.n_buckets)}
            )

    def make_whole(self, numbers: Sequence[int]) -> bool:
        """Fetch the whole texts of some buckets; return whether any was shortened."""
        missing = {}
        for number in numbers:
            calls = Group(self._calls, [number], "row").table(["inference_id", _PROMPT.flag])
            inferences = Group(self._inferences, [number], "row").table(["inference_id", _INPUT.flag])
            missing[number] = Wanted(
                ids_of(calls.filter(calls.column(_PROMPT.flag))),
                ids_of(inferences.filter(inferences.column(_INPUT.flag))),
            )
        self._bring(missing)
        return any(prompts or inputs for prompts, inputs in missing.values())

    def _wanted(
        self, connection: duckdb.DuckDBPyConnection, number: int, broken: Mapping[str, str]
    ) -> Wanted:
        calls = Group(self._calls, [number], "row").table([*OF_CALL, _PROMPT.flag])
        inferences = Group(self._inferences, [number], "row").table(OF_INPUT)
        return wanted(connection, calls, inferences, slots_of(number + 1, self._calls.n_buckets), broken)

    def _bring(self, missing: Mapping[int, Wanted]) -> None:
        reading = self._reading
        prompts = {number: ids.prompts for number, ids in missing.items() if ids.prompts}
        if prompts:
            found = reading.as_text(self._heads.whole_prompts(_chosen(prompts)))
            self._put(self._calls, found, tables.WHOLE_PROMPTS, prompts, _PROMPT)
        inputs = {number: ids.inputs for number, ids in missing.items() if ids.inputs}
        if inputs:
            found = reading.observing.of(reading.as_text(self._heads.whole_inputs(_chosen(inputs))))
            schema = pa.schema([*tables.WHOLE_INPUTS, OBSERVATION])
            self._put(self._inferences, found, schema, inputs, _INPUT)

    def _put(
        self,
        rows: Spool,
        found: Iterator[pa.RecordBatch],
        schema: pa.Schema,
        missing: Mapping[int, list[str]],
        text: _Text,
    ) -> None:
        """Replace shortened texts by the fetched ones."""
        bucket_of = {one: number for number, ids in missing.items() for one in ids}
        with_bucket = pa.schema([*schema, pa.field("bucket", pa.uint16())])
        whole = Spool(self._folder, f"whole_{text.columns[0]}", with_bucket, rows.n_buckets)
        whole.fill(_with_bucket(batch, bucket_of, with_bucket) for batch in found)
        for number, ids in missing.items():
            rows.replace(number, _replaced(rows, whole, number, pa.array(ids), text))
        Group(whole, range(rows.n_buckets), "row").drop()


def _chosen(missing: Mapping[int, list[str]]) -> pa.Table:
    return tables.chosen([one for ids in missing.values() for one in ids])


def _with_bucket(batch: pa.RecordBatch, bucket_of: Mapping[str, int], schema: pa.Schema) -> pa.RecordBatch:
    numbers = [bucket_of[str(one)] for one in batch.column("inference_id").to_pylist()]
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(numbers, pa.uint16())], schema=schema)


def _replaced(
    rows: Spool, whole: Spool, number: int, ids: pa.Array[Any], text: _Text
) -> Iterator[pa.RecordBatch]:
    """The rows of a bucket, those of these inferences with their whole texts."""
    found = Group(whole, [number], "row")
    keys = found.column(number, text.key).combine_chunks()
    texts = {name: found.texts(number, name) for name in text.columns}
    for wide in Group(rows, [number], "row").stream(rows.schema.names):
        for start in range(0, wide.num_rows, _SLICE_ROWS):
            batch = wide.slice(start, _SLICE_ROWS).drop_columns(["row"])
            is_wanted = pc.and_(batch.column(text.flag), pc.is_in(batch.column("inference_id"), ids))
            place = pc.index_in(batch.column(text.key), value_set=keys)
            _refuse_gone(batch.filter(pc.and_(is_wanted, pc.is_null(place))))
            for name, column in texts.items():
                taken = column.take(place).cast(pa.string())
                batch = tables.with_column(batch, name, pc.if_else(is_wanted, taken, batch.column(name)))
            batch = tables.with_column(batch, text.flag, pc.and_not(batch.column(text.flag), is_wanted))
            yield described_again(batch) if text is _PROMPT else batch


def _refuse_gone(rows: pa.RecordBatch) -> None:
    if rows.num_rows:
        raise ServiceError(
            f"inference {rows.column('inference_id')[0]}, or its model call, was removed during the export",
            hint="run the export again",
        )
