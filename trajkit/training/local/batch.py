"""Rows of tokens with weights as a torch dataset, and their batches as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trajkit._core.lazy import need

_COLUMNS: dict[str, pa.DataType] = {"input_ids": pa.list_(pa.int32()), "weights": pa.list_(pa.float32())}
SCHEMA = pa.schema(_COLUMNS)
"""Rows of tokens, with a loss weight for each token: 0 for a token that is context only."""


class TokenRows:
    """Rows as a torch dataset. Each item is a bin of one or more rows.

    Args:
        table: Rows in the form of `SCHEMA`, memory-mapped.
        bins: Rows of each item; None for one row per item.
    """

    def __init__(self, table: pa.Table, bins: Sequence[Sequence[int]] | None = None) -> None:
        self._tokens, self._weights = (table.column(name) for name in SCHEMA.names)
        self._bins = bins

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._tokens) if self._bins is None else len(self._bins)

    @property
    def lengths(self) -> Any:
        """Tokens of each item, as a numpy array."""
        chunks: Any = self._tokens.chunks  # lists, which the stubs take for any arrays
        sizes = np.concatenate([np.diff(chunk.offsets.to_numpy()) for chunk in chunks])
        return sizes if self._bins is None else np.array([sizes[rows].sum() for rows in self._bins])

    def __getitem__(self, number: int) -> Bin:
        """Return an item by its index."""
        rows = [number] if self._bins is None else self._bins[number]
        return Bin(
            [_values(self._tokens, row) for row in rows], [_values(self._weights, row) for row in rows]
        )


class Bin(NamedTuple):
    """Rows that are packed into one line of a batch."""

    tokens: list[Any]
    """Tokens of each row, as numpy arrays."""
    weights: list[Any]
    """Loss weights of each row."""


def _values(column: pa.ChunkedArray[Any], row: int) -> Any:
    return column[row].values.to_numpy(zero_copy_only=False)


def collate(bins: Sequence[Bin], *, padding: int) -> dict[str, Any]:
    """Build a batch: `input_ids`, `position_ids` and `weights`, with one line per bin.

    Positions restart at 0 with each row and with the padding at the end. transformers separates the rows of a
    line by them (`find_packed_sequence_indices`), so no row attends to another. The first token of a row has
    weight 0, because no earlier token of the row predicts it.
    """
    torch = need("torch", extra="local")
    width = max(sum(map(len, item.tokens)) for item in bins)
    tokens = np.full((len(bins), width), padding, dtype=np.int64)
    positions = np.zeros((len(bins), width), dtype=np.int64)
    weights = np.zeros((len(bins), width), dtype=np.float32)
    for line, item in enumerate(bins):
        start = 0
        for row, row_weights in zip(item.tokens, item.weights, strict=True):
            end = start + len(row)
            tokens[line, start:end] = row
            positions[line, start:end] = np.arange(len(row))
            weights[line, start + 1 : end] = row_weights[1:]
            start = end
        positions[line, start:] = np.arange(width - start)
    return {
        "input_ids": torch.from_numpy(tokens),
        "position_ids": torch.from_numpy(positions),
        "weights": torch.from_numpy(weights),
    }
