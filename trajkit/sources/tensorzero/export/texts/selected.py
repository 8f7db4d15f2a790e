"""Select long texts from the batches of a file, row by row, with a single copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_INLINE = 12
_VIEW = np.dtype([("length", "<i4"), ("inline", "u1", _INLINE)])
_LONG_VIEW = np.dtype([("length", "<i4"), ("prefix", "<i4"), ("place", "<i4"), ("start", "<i4")])
"""How Arrow lays out a view of a text: up to twelve bytes are in the view itself, of more it says where they
are. https://arrow.apache.org/docs/format/Columnar.html#variable-size-binary-view-layout"""


class Picked(NamedTuple):
    """Texts where they lie."""

    data: Sequence[pa.Buffer]
    places: NDArray[np.int64]
    """Which of the buffers holds each text."""
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


class Texts:
    """The texts of a column that may be in many pieces.

    Args:
        column: Of strings. A null is an empty text here.
        n_skipped: Bytes at the beginning of each text that are not wanted; none is shorter where it is read.
    """

    def __init__(self, column: pa.ChunkedArray[Any], *, n_skipped: int = 0) -> None:
        self._data: list[pa.Buffer] = []
        places, starts, ends = [], [], []
        for place, chunk in enumerate(column.chunks):
            # the stubs know no buffer that is missing, as that of an array without any text may be
            offsets, data = cast("list[Any]", chunk.buffers()[1:])
            bounds = np.frombuffer(offsets or b"", np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
            self._data.append(data or pa.py_buffer(b""))
            places.append(np.full(len(chunk), place))
            starts.append(bounds[:-1].astype(np.int64) + n_skipped)
            # a null is shorter than what is skipped
            ends.append(np.maximum(bounds[1:].astype(np.int64), starts[-1]))
        none = np.zeros(0, dtype=np.int64)
        self._places, self._starts, self._ends = (
            np.concatenate([none, *found]) for found in (places, starts, ends)
        )

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of bytes of each of some rows."""
        return cast("NDArray[np.int64]", self._ends[rows] - self._starts[rows])

    def at(self, rows: NDArray[np.int64]) -> list[memoryview]:
        """The bytes of some rows, in their order."""
        # of unsigned bytes: else what is not ASCII would be equal to no bytes
        data = [memoryview(each).cast("B") for each in self._data]
        found = (bounds[rows].tolist() for bounds in (self._places, self._starts, self._ends))
        return [data[place][start:end] for place, start, end in zip(*found, strict=True)]

    def picked(self, rows: NDArray[np.int64]) -> Picked:
        """Some rows, in their order."""
        return Picked(self._data, self._places[rows], self._starts[rows], self.lengths(rows))


def as_array(parts: Sequence[Picked], is_valid: NDArray[np.bool_]) -> pa.Array[Any]:
    """Join texts to the values of an array, in parallel with other Python code.

    Args:
        parts: What a value begins with, goes on with, and so on: UTF-8, a text for each value that is there.
        is_valid: Which values of the array are there; the others are null.
    """
    lengths = np.zeros(len(is_valid), dtype=np.int64)
    lengths[is_valid] = sum(part.lengths for part in parts)
    offsets: Any = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])  # the stubs want bytes
    bits: Any = np.packbits(is_valid, bitorder="little")
    validity = None if is_valid.all() else pa.py_buffer(bits)
    buffers = [validity, pa.py_buffer(offsets), _one_after_another(parts)]
    return cast("pa.Array[Any]", pa.Array.from_buffers(pa.large_string(), len(is_valid), buffers))


def _one_after_another(parts: Sequence[Picked]) -> pa.Buffer:
    """The bytes of the first text of each part, of the second text of each, and so on."""
    n_before = np.cumsum([0, *(len(part.data) for part in parts)])
    places = np.stack([part.places + n for part, n in zip(parts, n_before, strict=False)], axis=1)
    starts = np.stack([part.starts for part in parts], axis=1)
    lengths = np.stack([part.lengths for part in parts], axis=1)
    data = [each for part in parts for each in part.data]
    views: Any = _views(data, places.ravel(), starts.ravel(), lengths.ravel())
    buffers = [None, pa.py_buffer(views), *data]
    viewed: Any = pa.Array.from_buffers(pa.string_view(), len(views), buffers)  # the stubs know no views
    return cast("pa.Buffer", viewed.cast(pa.large_string()).buffers()[2])


def _views(
    data: Sequence[pa.Buffer],
    places: NDArray[np.int64],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> NDArray[Any]:
    views = np.zeros(len(lengths), _LONG_VIEW)  # without the prefixes, by which texts would be compared
    views["length"], views["place"], views["start"] = lengths, places, starts
    is_short = lengths <= _INLINE
    inline = views.view(_VIEW)["inline"]
    for place in np.unique(places[is_short]).tolist():
        rows = np.flatnonzero(is_short & (places == place))
        inline[rows] = _first_bytes(np.frombuffer(data[place], np.uint8), starts[rows], lengths[rows])
    return views


def _first_bytes(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """The bytes of short texts, and zeros after them."""
    found = np.zeros((len(starts), _INLINE), np.uint8)
    numbers = np.arange(_INLINE)
    is_there = numbers < lengths[:, None]
    found[is_there] = data[(starts[:, None] + numbers)[is_there]]
    return found
