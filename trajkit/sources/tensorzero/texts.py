"""Long texts as the batches of a file have them: picked row by row, and copied once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class Texts:
    """The texts of a column that may be in many pieces.

    Args:
        column: Of strings. A null is an empty text here.
        n_skipped: Bytes at the beginning of each text that are not wanted; none is shorter where it is read.
    """

    def __init__(self, column: pa.ChunkedArray[Any], *, n_skipped: int = 0) -> None:
        self._data = []
        places, starts, ends = [], [], []
        for place, chunk in enumerate(column.chunks):
            # the stubs know no buffer that is missing, as that of an array without any text may be
            offsets, data = cast("list[Any]", chunk.buffers()[1:])
            kind = np.int64 if pa.types.is_large_string(chunk.type) else np.int32
            bounds = np.frombuffer(offsets or b"", kind)[chunk.offset : chunk.offset + len(chunk) + 1]
            # of unsigned bytes: else what is not ASCII would be equal to no bytes
            self._data.append(memoryview(data or b"").cast("B"))
            places.append(np.full(len(chunk), place))
            starts.append(bounds[:-1].astype(np.int64) + n_skipped)
            ends.append(bounds[1:].astype(np.int64))
        none = np.zeros(0, dtype=np.int64)
        self._places, self._starts, self._ends = (
            np.concatenate([none, *found]) for found in (places, starts, ends)
        )

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many bytes each of some rows has."""
        return cast("NDArray[np.int64]", self._ends[rows] - self._starts[rows])

    def at(self, rows: NDArray[np.int64]) -> list[memoryview]:
        """The bytes of some rows, in their order."""
        found = (bounds[rows].tolist() for bounds in (self._places, self._starts, self._ends))
        return [self._data[place][start:end] for place, start, end in zip(*found, strict=True)]


def as_array(texts: Sequence[bytes | memoryview], lengths: NDArray[np.int64]) -> pa.Array[Any]:
    """Texts one after another, cut into an array.

    Args:
        texts: UTF-8.
        lengths: How many bytes each value of the array takes of them.
    """
    offsets: Any = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])  # the stubs want bytes
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
    return cast("pa.Array[Any]", pa.Array.from_buffers(pa.large_string(), len(lengths), buffers))
