"""Digest v1: one sha256 of a store's content that does not depend on parts, threads or source.

`docs/store-format.md` defines it in words, `tests/store/test_digest.py` again in plain Python.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute

from trajkit.schema import Metric
from trajkit.store.engine import literal, parsed
from trajkit.store.layout import LEVELS, METRICS, TABLES, Column, columns, quoted

_NUMBERS = ("BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMPTZ")
_SPELLED = "digested_"
"""Prefix of columns that are made only for the hash."""
_BATCH_ROWS = 4096  # as in a row group of a part

ORDER = {
    "episodes": ("episode_id",),
    "steps": ("episode_id", "step_index"),
    "feedback": ("episode_id", "feedback_id"),
}
"""Order of a table's rows in a part, and in the content hash of their episode."""
pc: Any = pyarrow.compute  # the stubs lack some of the types that its functions take
HASHES = pa.schema({"episode_id": pa.string(), "content_hash": pa.string()})


def elements(table: str) -> tuple[Element, ...]:
    """Return the elements of a row's bytes. The metrics always have one, measured or not."""
    return tuple(
        Element(
            _SPELLED + column.name if _is_spelled(column) else column.name, column.sql_type not in _NUMBERS
        )
        for column in TABLES[table]
        if column.is_digested
    )


def ordered_batches(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    metrics: Sequence[Metric],
    select: str,
    first_by: Sequence[str] = (),
    absent: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a SELECT in order, as batches that also have every column in `elements`.

    Args:
        connection: Runs the SELECT; no result of it may be open.
        table: The table of the rows.
        metrics: The metrics that have a column.
        select: SQL of the digested columns of the table, and any others.
        first_by: Columns that come before the table's own order.
        absent: Columns of the table that the SELECT does not have: they are null.
    """
    order = ", ".join((*first_by, *ORDER[table]))
    of_hash = [column for column in TABLES[table] if column.is_digested and _is_spelled(column)]
    spelled = "".join(
        f", {_spelling(column, table, metrics)} AS {_SPELLED}{column.name}"
        for column in of_hash
        if column.name not in absent
    )
    missing = [*absent, *(_SPELLED + column.name for column in of_hash if column.name in absent)]
    # computed after the sort, which then moves fewer bytes
    (statement,) = parsed(f"SELECT *{spelled} FROM ({select} ORDER BY {order}) r")
    rows = connection.sql(statement)
    for batch in rows.to_arrow_reader(_BATCH_ROWS):
        nothing = [pa.nulls(batch.num_rows)] * len(missing)
        yield pa.RecordBatch.from_arrays([*batch.columns, *nothing], [*batch.schema.names, *missing])


def store_digest(connection: duckdb.DuckDBPyConnection, episodes: str) -> str:
    """Return the digest of a store from the `episode_id` and `content_hash` of its episodes.

    DuckDB sorts the lines and they are hashed as they come, so memory does not grow with their number.
    """
    digest = hashlib.sha256()
    result = connection.execute(
        f"SELECT episode_id || ':' || content_hash || chr(10) AS line FROM {episodes} ORDER BY line"
    )
    while lines := result.fetchmany(10_000):
        digest.update("".join(line for (line,) in lines).encode("utf-8"))
    return digest.hexdigest()


def spelled_json(name: str) -> str:
    """Return SQL of the canonical text of a JSON value; NULL for null.

    DuckDB's VARIANT sorts the keys of objects and removes differences of spelling: spaces, escapes, 1e2.
    """
    text = f"CAST({name} AS VARCHAR)"
    # a string without escapes has only one spelling: most actions are such strings, and this is much faster
    is_plain = f"""starts_with({text}, '"') AND ends_with({text}, '"') AND NOT contains({text}, '\\')"""
    spelled = f"nullif(CAST(CAST(CAST({name} AS VARIANT) AS JSON) AS VARCHAR), 'null')"
    return f"CASE WHEN {name} IS NULL THEN NULL WHEN {is_plain} THEN {text} ELSE {spelled} END"


def _is_spelled(column: Column) -> bool:
    """Whether the hash covers a canonical text of the column instead of the stored value."""
    is_free_json = column.sql_type == "JSON" and not column.is_closed
    return is_free_json or column.sql_type == METRICS or column.sql_type.endswith("[]")


def _spelling(column: Column, table: str, metrics: Sequence[Metric]) -> str:
    name = f"r.{quoted(column.name)}"
    if column.sql_type == "JSON":
        return spelled_json(name)
    if column.sql_type != METRICS:
        return f"CAST(to_json({name}) AS VARCHAR)"
    present = {column.name for column in columns(table, metrics)}
    of_level = [metric for metric in metrics if metric.level == LEVELS[table]]
    return _metrics(of_level, name) if "metrics" in present else "CAST(NULL AS VARCHAR)"


def _metrics(metrics: Sequence[Metric], struct: str) -> str:
    """Return SQL of the measured metrics as an object with sorted keys, NULL when there is none."""
    fields = ", ".join(
        f"CAST(to_json({literal(metric.name)}) AS VARCHAR) || ':' || "
        f"CAST(to_json({struct}.{quoted(metric.name)}) AS VARCHAR)"
        for metric in sorted(metrics, key=lambda metric: metric.name)
    )
    return f"'{{' || nullif(concat_ws(',', {fields}), '') || '}}'"


class Element(NamedTuple):
    """The bytes that one column adds to a row."""

    column: str
    """The column of the batch that holds it."""
    is_text: bool
    """A text adds its length and its bytes; everything else is 64 bits."""


class ContentHashes:
    """One sha256 per episode, fed with the episode's own row, then its steps, then its feedback."""

    def __init__(self) -> None:
        self._hashes: dict[str, Any] = {}

    def update(self, batch: pa.RecordBatch, elements: Sequence[Element]) -> None:
        """Feed rows; the rows of an episode are adjacent and in order.

        Args:
            batch: Has the column `episode_id` and those of the elements.
            elements: The elements of a row, in order.
        """
        if not batch.num_rows:
            return
        rows = row_bytes(batch, elements)
        # only the first buffer, the validity bitmap, may be missing
        offset_buffer, data_buffer = cast("list[pa.Buffer]", rows.buffers()[1:])
        offsets = memoryview(offset_buffer).cast("q")[rows.offset : rows.offset + len(rows) + 1]
        data = memoryview(data_buffer)
        runs = pc.run_end_encode(batch.column("episode_id"))
        start = 0
        for end, episode_id in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            found = self._hashes.get(episode_id)
            if found is None:
                found = self._hashes[episode_id] = hashlib.sha256()
            found.update(data[offsets[start] : offsets[end]])
            start = end

    def table(self) -> pa.Table:
        """Return the hashes so far, one row per episode (`HASHES`)."""
        values = [found.hexdigest() for found in self._hashes.values()]
        return pa.table([pa.array(self._hashes, pa.string()), pa.array(values, pa.string())], schema=HASHES)


def row_bytes(batch: pa.RecordBatch, elements: Sequence[Element]) -> pa.LargeBinaryArray:
    """Return the bytes of each row: which elements have a value, their numbers and lengths, and the texts.

    One byte per element, 1 for a value and 0 for null; then 8 bytes per element, little-endian: the number (a
    double as its IEEE bits, a boolean as 0 or 1, a time in microseconds since 1970), the length of the text
    in bytes, or 0 for null; then the texts in UTF-8, one after another.
    """
    n_rows, n_elements = batch.num_rows, len(elements)
    heads: Any = np.zeros(n_rows, np.dtype([("present", "u1", n_elements), ("numbers", "<i8", n_elements)]))
    present, numbers = heads["present"], heads["numbers"]
    texts = []
    for place, element in enumerate(elements):
        values: pa.Array[Any] = batch.column(element.column)
        if isinstance(values, pa.ExtensionArray):
            values = values.storage
        if values.null_count == n_rows:
            continue
        present[:, place] = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else 1
        if element.is_text:
            numbers[:, place] = _int64(pc.binary_length(values))
            texts.append(values.cast(pa.large_binary()))
        elif pa.types.is_floating(values.type):
            numbers[:, place] = values.fill_null(0.0).to_numpy(zero_copy_only=False).view("<i8")
        else:
            numbers[:, place] = _int64(values)
    places: Any = np.arange(n_rows + 1, dtype=np.int64) * heads.itemsize  # Any: the stubs want bytes
    buffers = [None, pa.py_buffer(places), pa.py_buffer(heads)]
    joined = pc.binary_join_element_wise(
        pa.Array.from_buffers(pa.large_binary(), n_rows, buffers),
        *texts,
        pa.scalar(b"", pa.large_binary()),
        null_handling="replace",
        null_replacement="",
    )
    return cast("pa.LargeBinaryArray", joined)


def _int64(values: pa.Array[Any]) -> Any:
    return values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
