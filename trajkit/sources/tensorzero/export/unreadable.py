"""Record rows whose text is not UTF-8 or not JSON by id, without dropping any.

Bytes are checked as the rows arrive, which costs next to nothing. Whether a text is JSON shows only when it
is parsed: when that fails, the rows of those buckets are checked one by one, and texts that are not JSON
become null.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import duckdb
import numpy as np
import pyarrow as pa

from trajkit.sources.tensorzero.connect.tables import pc, texts_of, with_column
from trajkit.sources.tensorzero.export.spool import Group, Spool
from trajkit.sources.tensorzero.export.texts.late import described_again

_NOT_UTF8 = "text is not UTF-8"


class _Json(NamedTuple):
    """A column that holds JSON."""

    words: str
    """Its name in errors."""
    may_be_empty: bool = False
    """Whether an empty text means nothing, like null."""


_INPUT = _Json("input")
"""Checked as it arrives (`observed.py`)."""
_OF_INFERENCES = {
    "output": _Json("output"),
    "auxiliary_content": _Json("auxiliary content", True),
    "tool_params": _Json("list of tools", True),
    "dynamic_tools": _Json("list of tools"),
    "dynamic_provider_tools": _Json("list of tools"),
    "allowed_tools": _Json("list of allowed tools"),
}
_OF_CALLS = {"input_messages": _Json("prompt", True), "output": _Json("model's output", True)}
_EMPTY = {"input_messages": ""}
"""The empty value of columns that cannot be null."""


class Unreadable:
    """The unreadable texts and their rows; several threads may add to it."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._lock = threading.Lock()

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why, by the id of the inference, or of the feedback."""
        return self._reasons

    def as_text(self, batches: Iterator[pa.RecordBatch], key: str) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a stream as UTF-8, with replacement characters for invalid bytes.

        Args:
            batches: The stream.
            key: The column of the id under which it is noted.
        """
        for batch in batches:
            try:
                batch.validate(full=True)
            except pa.ArrowInvalid:
                yield self._as_text(batch, key)
            else:
                yield batch

    def without_broken_inputs(self, inferences: pa.RecordBatch) -> pa.RecordBatch:
        """Return the same inferences; an input that is not JSON is null."""
        mended = self._without_broken(pa.Table.from_batches([inferences]), "input", _INPUT)
        return inferences if mended is None else mended.combine_chunks().to_batches()[0]

    def mend(self, inferences: Spool, calls: Spool, numbers: Sequence[int]) -> bool:
        """Check the JSON of some buckets, and replace invalid JSON by null.

        Returns:
            Whether any was invalid.
        """
        found = [self._mend(inferences, number, _OF_INFERENCES) for number in numbers]
        return any([*found, *(self._mend(calls, number, _OF_CALLS) for number in numbers)])

    def note(self, ids: Sequence[str], reason: str) -> None:
        """Record why rows cannot be read; the first reason given for a row stays."""
        with self._lock:
            for row_id in ids:
                self._reasons.setdefault(row_id, reason)

    def _as_text(self, batch: pa.RecordBatch, key: str) -> pa.RecordBatch:
        columns, is_changed = [], np.zeros(batch.num_rows, dtype=bool)
        for column in batch.columns:
            fixed, changed = _decoded(column)
            columns.append(fixed)
            is_changed |= changed
        fixed_batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
        self.note(texts_of(fixed_batch.column(key).filter(pa.array(is_changed))), _NOT_UTF8)
        return fixed_batch

    def _without_broken(self, table: pa.Table, name: str, column: _Json) -> pa.Table | None:
        """Return rows with invalid JSON of a column replaced and recorded; None if all was valid."""
        broken = pc.invert(_is_json(table.column(name), may_be_empty=column.may_be_empty))
        if not pc.any(broken).as_py():
            return None
        self.note(texts_of(table.column("inference_id").filter(broken)), f"{column.words} is not JSON")
        fixed = pc.if_else(broken, pa.scalar(_EMPTY.get(name), pa.string()), table.column(name))
        return with_column(table, name, fixed)

    def _mend(self, spool: Spool, number: int, columns: Mapping[str, _Json]) -> bool:
        table = Group(spool, [number], "row").table(spool.schema.names).drop_columns(["row"])
        is_broken = False
        for name, column in columns.items():
            mended = self._without_broken(table, name, column)
            if mended is not None:
                is_broken, table = True, mended
        if is_broken:
            spool.replace(number, _batches(table))
        return is_broken


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows of a bucket; the facts about prompts are computed again."""
    for batch in table.to_batches():
        yield described_again(batch) if "input_messages" in table.schema.names else batch


def _is_json(texts: pa.ChunkedArray[Any], *, may_be_empty: bool) -> pa.ChunkedArray[Any]:
    """Whether each text is JSON; one that is null need not be."""
    text = "nullif(text, '')" if may_be_empty else "text"
    with duckdb.connect() as connection:
        connection.register("texts", pa.table({"text": texts}))
        found = connection.sql(f"SELECT coalesce(json_valid({text}), true) AS is_json FROM texts")
        return cast("pa.ChunkedArray[Any]", found.to_arrow_table().column("is_json"))


def _decoded(column: pa.Array[Any]) -> tuple[pa.Array[Any], Any]:
    """A column whose texts are UTF-8, and in which rows they were not."""
    is_changed = np.zeros(len(column), dtype=bool)
    if isinstance(column, pa.MapArray):
        keys, key_changed = _decoded(column.keys)
        items, item_changed = _decoded(column.items)
        offsets = column.offsets.to_numpy()
        rows = np.searchsorted(offsets, np.flatnonzero(key_changed | item_changed) + offsets[0], "right") - 1
        is_changed[rows] = True
        build: Any = pa.MapArray.from_arrays  # the stubs want offsets of 64 bits
        return build(column.offsets, keys, items), is_changed
    if not pa.types.is_string(column.type):
        return column, is_changed
    texts = []
    for row, value in enumerate(column.cast(pa.binary()).to_pylist()):
        text = None if value is None else value.decode("utf-8", "replace")
        is_changed[row] = text is not None and text.encode() != value
        texts.append(text)
    return pa.array(texts, pa.string()), is_changed
