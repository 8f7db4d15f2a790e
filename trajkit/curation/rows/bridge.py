"""From numpy to Arrow and back without a copy.

And without pandas: pyarrow imports it, where it is installed, as soon as it is given a value of Python's or
an array of numpy's, and that takes longer than the rows of a small store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, np.dtype[Any]]
"""An array of numbers, or of yes and no."""


def bytes_in(buffer: Any) -> Numbers:
    """The bytes of a buffer; none of one that is not there."""
    return np.frombuffer(b"" if buffer is None else buffer, np.uint8)


def numbers_in(buffer: Any) -> Numbers:
    """Whole numbers of 64 bits as they lie in a buffer."""
    return np.frombuffer(buffer, np.int64)


def bounds_in(column: pa.Array[Any]) -> Numbers:
    """Where each text of a column begins, and where the last one ends."""
    offsets: Any = column.buffers()[1]
    return np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)


def reals_in(column: pa.Array[Any]) -> Numbers:
    """The numbers of a column; where it is null there is any number."""
    reals = column.cast(pa.float64())
    values: Any = reals.buffers()[1]
    return np.frombuffer(values, np.float64, len(column), 8 * reals.offset)


def numbers_of(values: Numbers, is_known: Numbers | None = None) -> pa.Array[Any]:
    """A column of whole numbers; null where they are not known."""
    validity = None if is_known is None else _bits(is_known)
    whole = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(whole), [validity, buffer_of(whole)])


def flags_in(column: pa.Array[Any]) -> Numbers:
    """Yes and no of a column that has no nulls."""
    numbers = column.cast(pa.uint8())
    values: Any = numbers.buffers()[1]
    return np.frombuffer(values, np.bool_, len(column), numbers.offset)


def flags_of(values: Numbers) -> pa.Array[Any]:
    """A column of yes and no."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def texts_of(texts: Sequence[str]) -> pa.Array[Any]:
    """A column of texts."""
    encoded = [text.encode() for text in texts]
    bounds = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [None, buffer_of(bounds), buffer_of(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def lines_of(data: Any, bounds: Numbers, is_there: Numbers) -> pa.Array[Any]:
    """A column of texts that lie one after the other.

    Args:
        data: Their bytes.
        bounds: Where each begins, and where the last one ends.
        is_there: The others are null.
    """
    validity = None if bool(is_there.all()) else _bits(is_there)
    return pa.Array.from_buffers(pa.large_string(), len(is_there), [validity, buffer_of(bounds), data])


def buffer_of(values: Any) -> Any:
    """An array's memory, or bytes, as Arrow takes them; they live as long as the buffer."""
    return pa.py_buffer(values)


def _bits(values: Numbers) -> Any:
    return buffer_of(np.packbits(values, bitorder="little"))
