"""Convert between numpy and Arrow without a copy and without pandas.

If pandas is installed, pyarrow imports it as soon as it gets a Python value or a numpy array, and that takes
longer than writing the rows of a small store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, np.dtype[Any]]
"""An array of numbers or booleans."""


def bytes_in(buffer: Any) -> Numbers:
    """Return the bytes of a buffer; none for None."""
    return np.frombuffer(b"" if buffer is None else buffer, np.uint8)


def numbers_in(buffer: Any) -> Numbers:
    """Return a buffer as 64-bit integers."""
    return np.frombuffer(buffer, np.int64)


def bounds_in(column: pa.Array[Any]) -> Numbers:
    """Return the offset of each text of a column, and the end of the last one."""
    offsets: Any = column.buffers()[1]
    return np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)


def reals_in(column: pa.Array[Any]) -> Numbers:
    """Return the numbers of a column; where it is null, the number is arbitrary."""
    reals = column.cast(pa.float64())
    values: Any = reals.buffers()[1]
    return np.frombuffer(values, np.float64, len(column), 8 * reals.offset)


def numbers_of(values: Numbers, is_known: Numbers | None = None) -> pa.Array[Any]:
    """Make a column of integers; null if they are not known."""
    validity = None if is_known is None else _bits(is_known)
    whole = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(whole), [validity, buffer_of(whole)])


def flags_in(column: pa.Array[Any]) -> Numbers:
    """Return the booleans of a column without nulls."""
    numbers = column.cast(pa.uint8())
    values: Any = numbers.buffers()[1]
    return np.frombuffer(values, np.bool_, len(column), numbers.offset)


def flags_of(values: Numbers) -> pa.Array[Any]:
    """Make a column of booleans."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def texts_of(texts: Sequence[str]) -> pa.Array[Any]:
    """Make a column of texts."""
    encoded = [text.encode() for text in texts]
    bounds = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [None, buffer_of(bounds), buffer_of(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def lines_of(data: Any, bounds: Numbers, is_there: Numbers) -> pa.Array[Any]:
    """Make a column of texts that are concatenated in memory.

    Args:
        data: Their bytes.
        bounds: The offset of each text, and the end of the last one.
        is_there: Texts for which this is false are null.
    """
    validity = None if bool(is_there.all()) else _bits(is_there)
    return pa.Array.from_buffers(pa.large_string(), len(is_there), [validity, buffer_of(bounds), data])


def buffer_of(values: Any) -> Any:
    """Return an array's memory, or bytes, as an Arrow buffer that keeps them alive."""
    return pa.py_buffer(values)


def _bits(values: Numbers) -> Any:
    return buffer_of(np.packbits(values, bitorder="little"))
