"""Texts of an archive that were not UTF-8, given back as texts that are not: so an export notices them too.

The archive has U+FFFD where a byte could not be read. Each becomes one byte that no UTF-8 has, which whoever
decodes the text makes U+FFFD again.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_SHOWN = "\ufffd".encode()
_NO_UTF8 = b"\xff"


def as_it_came(batch: pa.RecordBatch, marks: Any) -> pa.RecordBatch:
    """The rows with texts that are not UTF-8 where they were not.

    Args:
        batch: Texts, and lists of `key` and `value`.
        marks: For each row the names of the columns that were not UTF-8, null for none.
    """
    rows_by_name: dict[str, list[int]] = {}
    for row, names in enumerate(marks.to_pylist()):
        for name in names or ():
            rows_by_name.setdefault(name, []).append(row)
    columns = [
        _spoiled(column, rows_by_name[name]) if name in rows_by_name else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _spoiled(column: Any, rows: list[int]) -> pa.Array[Any]:
    if pa.types.is_list(column.type):
        offsets = column.offsets.to_pylist()
        of_items = [item for row in rows for item in range(offsets[row], offsets[row + 1])]
        pairs: Any = column.values
        keys, values = (_spoiled(pairs.field(name), of_items) for name in ("key", "value"))
        struct = pa.StructArray.from_arrays([keys, values], names=["key", "value"])
        return pa.ListArray.from_arrays(column.offsets, struct)
    texts = column.cast(pa.binary()).to_pylist()
    for row in rows:
        texts[row] = texts[row].replace(_SHOWN, _NO_UTF8)
    return pa.array(texts, pa.binary()).view(pa.string())
