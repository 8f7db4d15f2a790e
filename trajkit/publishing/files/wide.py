"""Move the largest values of rows that are too wide for the Hub's viewer to separate files, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trajkit.store.engine import literal, scan
from trajkit.store.layout import Column, quoted

MOST_ROW_BYTES = 1_900_000
"""Maximum bytes per row; the viewer shows rows up to about 2 MB."""

_KEYS = ("episode_id", "step_index", "feedback_id")
_MOVED: dict[str, pa.DataType] = {
    "table": pa.string(),
    "episode_id": pa.string(),
    "step_index": pa.int64(),
    "feedback_id": pa.string(),
    "column": pa.string(),
    "value": pa.string(),
}
MOVED_SCHEMA = pa.schema(_MOVED)
"""Columns of a file of moved values: the place of each, and the value as text, lists as JSON."""


class Slim(NamedTuple):
    """Rows that fit, and the values that were moved out of them."""

    batch: pa.RecordBatch
    """The rows; moved values are null."""
    moved: pa.Table
    """The moved values."""
    n_rows: int
    """Number of rows with moved values."""


def row_bytes(batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return about how many bytes each row has."""
    total = np.zeros(batch.num_rows, dtype=np.int64)
    for column in batch.columns:
        total += _bytes_of(column)
    return total


def slimmed(table: str, batch: pa.RecordBatch) -> Slim:
    """Limit the size of a table's rows: of those too wide, the largest values are moved until they fit."""
    sizes = {name: _bytes_of(batch.column(name)) for name in batch.schema.names if name not in _KEYS}
    total = row_bytes(batch)
    wide = np.flatnonzero(total > MOST_ROW_BYTES)
    if not len(wide):
        return Slim(batch, MOVED_SCHEMA.empty_table(), 0)
    taken: dict[str, set[int]] = {}
    rows: list[dict[str, Any]] = []
    for row in wide.tolist():
        left = int(total[row])
        widest = {name: int(size[row]) for name, size in sizes.items()}
        for name in sorted(widest, key=widest.__getitem__, reverse=True):
            if left <= MOST_ROW_BYTES or not widest[name]:
                break
            left -= widest[name]
            taken.setdefault(name, set()).add(row)
            rows.append(
                {"table": table, "column": name, "value": _as_text(batch.column(name)[row])}
                | {key: batch.column(key)[row].as_py() for key in _KEYS if key in batch.schema.names}
            )
    columns = [
        _without(batch.column(name), taken[name]) if name in taken else batch.column(name)
        for name in batch.schema.names
    ]
    slim = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
    return Slim(slim, pa.Table.from_pylist(rows, schema=MOVED_SCHEMA), len(wide))


def with_moved(table: str, select: str, columns: Sequence[Column], moved: Mapping[str, Any]) -> str:
    """Return SQL that puts moved values back.

    Args:
        table: Name of the rows' table.
        select: SQL of the rows, in brackets.
        columns: The table's columns.
        moved: `files`, the Parquet files with the values, and `columns`, the names of the moved columns.
    """
    names = [column for column in columns if column.name in moved["columns"]]
    if not names:
        return select
    keys = {"episodes": ("episode_id",), "steps": ("episode_id", "step_index")}.get(table, ("feedback_id",))
    same = " AND ".join(f"m.{key} = t.{key}" for key in keys)
    joins, values = [], []
    for number, column in enumerate(names):
        name = f"m{number}"
        where = same.replace("m.", f"{name}.")
        joins.append(
            f'LEFT JOIN (SELECT * FROM {scan(moved["files"])} WHERE "table" = {literal(table)} '
            f'AND "column" = {literal(column.name)}) AS {name} ON {where}'
        )
        values.append(
            f"coalesce(t.{quoted(column.name)}, {_back(name, column.sql_type)}) AS {quoted(column.name)}"
        )
    return f"(SELECT t.* REPLACE ({', '.join(values)}) FROM {select} AS t {' '.join(joins)})"


def _back(name: str, sql_type: str) -> str:
    if sql_type.endswith("[]") or sql_type.startswith("STRUCT"):
        return f"CAST(CAST({name}.value AS JSON) AS {sql_type})"
    return f"CAST({name}.value AS {sql_type})"


def _bytes_of(array: pa.Array[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the bytes of each value, including everything inside nested values."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        texts: Any = array
        return _int64(pc.binary_length(texts))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _bytes_of(array.flatten())  # type: ignore[attr-defined]
        lengths = _int64(pc.list_value_length(array))
        ends = np.cumsum(lengths)
        sums = np.concatenate([[0], np.cumsum(inner)])
        found: np.ndarray[Any, np.dtype[np.int64]] = sums[ends] - sums[ends - lengths]
        return found
    if pa.types.is_struct(kind):
        total = np.zeros(len(array), dtype=np.int64)
        for child in array.flatten():  # type: ignore[attr-defined]
            total += _bytes_of(child)
        return total
    return np.full(len(array), 8, dtype=np.int64)


def _int64(array: pa.Array[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers: Any = array.cast(pa.int64())
    filled: Any = pc.fill_null(numbers, 0)
    found: np.ndarray[Any, np.dtype[np.int64]] = filled.to_numpy(zero_copy_only=False)
    return found


def _as_text(value: pa.Scalar[Any]) -> str:
    found = value.as_py()
    return found if isinstance(found, str) else json.dumps(found)


def _without(array: pa.Array[Any], rows: set[int]) -> pa.Array[Any]:
    keep = np.ones(len(array), dtype=bool)
    keep[sorted(rows)] = False
    places: Any = pa.array(np.arange(len(array)), mask=~keep)
    return array.take(places)
