"""Rows of tokens with their weights, and batches of them as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trajkit._core.lazy import need

_COLUMNS: dict[str, pa.DataType] = {"input_ids": pa.list_(pa.int32()), "weights": pa.list_(pa.float32())}
SCHEMA = pa.schema(_COLUMNS)
"""Rows of tokens, and for each token how much its loss counts: 0 for what is only read."""


class TokenRows:
    """Rows as a dataset of torch: what it holds are bins of rows, each a list of positions.

    Args:
        table: `SCHEMA`; mapped from a file, so that memory does not grow with it.
        bins: The rows of each item; None for one row in each.
    """

    def __init__(self, table: pa.Table, bins: Sequence[Sequence[int]] | None = None) -> None:
        self._tokens, self._weights = (table.column(name) for name in SCHEMA.names)
        self._bins = bins

    def __len__(self) -> int:
        """How many bins there are."""
        return len(self._tokens) if self._bins is None else len(self._bins)

    @property
    def lengths(self) -> Any:
        """Tokens of each bin, as a numpy array."""
        chunks: Any = self._tokens.chunks  # lists, which the stubs take for any arrays
        sizes = np.concatenate([np.diff(chunk.offsets.to_numpy()) for chunk in chunks])
        return sizes if self._bins is None else np.array([sizes[rows].sum() for rows in self._bins])

    def __getitem__(self, number: int) -> Bin:
        """A bin by its position."""
        rows = [number] if self._bins is None else self._bins[number]
        return Bin(
            [_values(self._tokens, row) for row in rows], [_values(self._weights, row) for row in rows]
        )


class Bin(NamedTuple):
    """Rows that lie side by side."""

    tokens: list[Any]
    """The tokens of each, as numpy arrays."""
    weights: list[Any]
    """Their weights."""


def _values(column: pa.ChunkedArray[Any], row: int) -> Any:
    return column[row].values.to_numpy(zero_copy_only=False)


def collate(bins: Sequence[Bin], *, padding: int) -> dict[str, Any]:
    """A batch: `input_ids`, `position_ids` and `weights`, each of one line for every bin.

    Positions begin again at 0 with each row, and with the padding at the end: that is how transformers tells
    rows apart (`find_packed_sequence_indices`), and no row attends to another. The first token of a row has
    weight 0, because nothing before it could tell it.
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
