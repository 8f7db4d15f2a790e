"""Replace the prompts that were sent by prompts rendered under another variant, one bucket at a time.

This happens between the database and the assembly: a model call gets the system message and the messages that
the gateway would have sent under that variant, and all later code treats them as sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import pyarrow as pa

from trajkit.errors import ConfigError, DataError
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.connect.slot import slots_of
from trajkit.sources.tensorzero.connect.tables import ids_as, pc, texts_of, with_column
from trajkit.sources.tensorzero.export.spool import Group, Spool
from trajkit.sources.tensorzero.export.texts.late import described
from trajkit.sources.tensorzero.render.snapshots import TemplateSource
from trajkit.store.engine import literal

_BATCH_ROWS = 4_096
"""Number of inputs that are Python objects at a time."""

_RENDERED = pa.schema(
    [
        ("inference_id", pa.string()),
        ("system", pa.string()),
        ("input_messages", pa.string()),
        ("unknown_because", pa.string()),
    ]
)


class Rerendering:
    """Renders the prompts of an export under one variant.

    Args:
        source: The source of templates.
        variant: The variant.
        connection: Where `chosen_step` is.

    Raises:
        QueryError: A function whose steps are trained on has no such variant.
        ConfigError: The variant has no templates of its own, or one of them is missing.
    """

    def __init__(self, source: TemplateSource, variant: str, connection: duckdb.DuckDBPyConnection) -> None:
        self._source = source
        self._variant = variant
        learned, others = _functions(connection)
        source.check(learned, variant)
        self._functions = [*learned, *(name for name in others if self._can_render(name))]

    def apply(
        self, connection: duckdb.DuckDBPyConnection, inferences: Spool, calls: Spool, number: int
    ) -> None:
        """Replace the prompts of one bucket.

        Args:
            connection: Where `chosen_step` is.
            inferences: The inferences.
            calls: Their model calls, which get the prompts; an inference without one gets one.
            number: The number of the bucket.
        """
        if not self._functions:
            return
        names = ", ".join(map(literal, self._functions))
        first_slot, last_slot = slots_of(number + 1, inferences.n_buckets)
        functions = dict(
            connection.execute(
                "SELECT inference_id::VARCHAR, function_name FROM chosen_step"
                f" WHERE slot BETWEEN {first_slot} AND {last_slot} AND function_name IN ({names})"
            ).fetchall()
        )
        group = Group(inferences, [number], "row")
        made = pa.Table.from_batches(list(self._rendered(group, functions)), _RENDERED)
        if made.num_rows:
            before = Group(calls, [number], "row").table(calls.schema.names)
            calls.replace(number, _replaced(before, made, number))

    def _can_render(self, function: str) -> bool:
        """Whether the prompts of a function that is only context can be rendered; else they stay as sent."""
        try:
            return self._source.renderer(None, function, self._variant) is not None
        except ConfigError:
            return False

    def _rendered(self, inferences: Group, functions: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
        for wide in inferences.stream(["inference_id", "snapshot_hash", "input"]):
            for start in range(0, wide.num_rows, _BATCH_ROWS):
                batch = wide.slice(start, _BATCH_ROWS)
                ids = texts_of(batch.column("inference_id"))
                hashes, inputs = (batch.column(name).to_pylist() for name in ("snapshot_hash", "input"))
                made = [
                    self._row(inference_id, snapshot_hash, functions[inference_id], stored)
                    for inference_id, snapshot_hash, stored in zip(ids, hashes, inputs, strict=True)
                    if inference_id in functions
                ]
                yield pa.RecordBatch.from_pylist(made, _RENDERED)

    def _row(
        self, inference_id: str, snapshot_hash: str | None, function: str, stored: str | None
    ) -> dict[str, str | None]:
        """Return the prompt of one inference (`_RENDERED`), or why there is none."""
        try:
            renderer = self._source.renderer(snapshot_hash, function, self._variant)
            if renderer is None:
                raise DataError(f"no configuration has variant {self._variant!r}")
            system, messages = renderer.prompt(stored)
        except (DataError, ConfigError) as error:
            return {"inference_id": inference_id, "input_messages": "", "unknown_because": error.message}
        return {"inference_id": inference_id, "system": system, "input_messages": messages}


def _functions(connection: duckdb.DuckDBPyConnection) -> tuple[list[str], list[str]]:
    """Return the functions whose steps are trained on, and the others."""
    rows = connection.execute(
        "SELECT function_name, bool_or(unselected IS NULL) FROM chosen_step"
        " GROUP BY function_name ORDER BY function_name"
    ).fetchall()
    learned = [name for name, is_learned in rows if is_learned]
    return learned, [name for name, is_learned in rows if not is_learned]


def _replaced(before: pa.Table, made: pa.Table, number: int) -> Iterator[pa.RecordBatch]:
    """Yield the calls of a bucket with their new prompts, and one for each inference without a call."""
    schema = pa.schema([before.schema.field(name) for name in tables.MODEL_INFERENCES.names])
    ids = pa.chunked_array([texts_of(before.column("inference_id"))], pa.string())
    place = pc.index_in(ids, value_set=made.column("inference_id"))
    is_made = pc.is_valid(place)
    new = {
        name: pc.if_else(is_made, made.column(name).take(place), before.column(name))
        for name in ("system", "input_messages")
    }
    changed = pa.table({name: new.get(name, before.column(name)) for name in schema.names}, schema)
    has_call = pc.is_in(made.column("inference_id"), value_set=ids)
    without = made.filter(pc.invert(has_call))
    given: dict[str, Any] = {name: without.column(name) for name in ("system", "input_messages")}
    id_type = schema.field("inference_id").type
    given["inference_id"] = ids_as(texts_of(without.column("inference_id")), id_type)
    given["bucket"] = pa.array([number] * without.num_rows, pa.uint16())
    added = pa.table(
        {field.name: given.get(field.name, pa.nulls(without.num_rows, field.type)) for field in schema},
        schema,
    )
    because = made.column("unknown_because")
    reasons = pa.chunked_array([*because.take(place).chunks, *without.column("unknown_because").chunks])
    was_asked = pa.chunked_array([*is_made.chunks, pa.repeat(True, without.num_rows)])
    yield from _described(pa.concat_tables([changed, added]), reasons, was_asked)


def _described(calls: pa.Table, reasons: Any, was_asked: Any) -> Iterator[pa.RecordBatch]:
    """Yield the calls with the facts that SQL needs about their prompts."""
    start = 0
    for batch in calls.to_batches():
        end = start + batch.num_rows
        found = described(batch)
        because = reasons.slice(start, batch.num_rows).combine_chunks()
        is_rendered = pc.and_(was_asked.slice(start, batch.num_rows).combine_chunks(), pc.is_null(because))
        for name, values in (("is_rendered", is_rendered), ("unknown_because", because)):
            found = with_column(found, name, values)
        yield found
        start = end
