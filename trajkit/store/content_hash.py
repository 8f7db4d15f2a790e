"""Compute the content hash of episodes from their rows as Arrow batches.

A row becomes a run of bytes, made for all rows of a batch at once. The bytes of one episode lie side by side,
so that they are hashed in one piece, without a loop over rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # the stubs know too few of the types that its functions take

HASHES = pa.schema({"episode_id": pa.string(), "content_hash": pa.string()})


class Element(NamedTuple):
    """The bytes that one column adds to a row."""

    column: str
    """The column of the batch that holds it."""
    is_text: bool
    """Text adds its length and its bytes; everything else is 64 bits."""


class ContentHashes:
    """One sha256 per episode, fed with the episode's own row, then its steps', then its feedback's."""

    def __init__(self) -> None:
        self._hashes: dict[str, Any] = {}

    def update(self, batch: pa.RecordBatch, elements: Sequence[Element]) -> None:
        """Feed rows, those of an episode side by side and in order.

        Args:
            batch: Has the column `episode_id` and those of the elements.
            elements: The elements of a row, in order.
        """
        if not batch.num_rows:
            return
        rows = row_bytes(batch, elements)
        # only the first buffer, which says where nulls are, may be missing
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
        """The hashes so far, one row per episode (`HASHES`)."""
        values = [found.hexdigest() for found in self._hashes.values()]
        return pa.table([pa.array(self._hashes, pa.string()), pa.array(values, pa.string())], schema=HASHES)


def row_bytes(batch: pa.RecordBatch, elements: Sequence[Element]) -> pa.LargeBinaryArray:
    """The bytes of each row: which elements are there, their numbers and lengths, and the texts.

    One byte per element, 1 where there is a value and 0 for null; then 8 bytes per element, little-endian:
    the number (a double as its IEEE bits, a boolean as 0 or 1, a moment in microseconds since 1970), the
    length of the text in bytes, or 0 for null; then the texts in UTF-8, one after another.
    """
    n_rows, n_elements = batch.num_rows, len(elements)
    heads: Any = np.zeros(n_rows, np.dtype([("present", "u1", n_elements), ("numbers", "<i8", n_elements)]))
    present, numbers = heads["present"], heads["numbers"]
    texts = []
    for place, element in enumerate(elements):
        values = _storage(batch.column(element.column))
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
    places: Any = np.arange(n_rows + 1, dtype=np.int64) * heads.itemsize  # the stubs want bytes
    buffers = [None, pa.py_buffer(places), pa.py_buffer(heads)]
    joined = pc.binary_join_element_wise(
        pa.Array.from_buffers(pa.large_binary(), n_rows, buffers),
        *texts,
        pa.scalar(b"", pa.large_binary()),
        null_handling="replace",
        null_replacement="",
    )
    return cast("pa.LargeBinaryArray", joined)


def _storage(values: pa.Array[Any]) -> pa.Array[Any]:
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def _int64(values: pa.Array[Any]) -> Any:
    return values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
