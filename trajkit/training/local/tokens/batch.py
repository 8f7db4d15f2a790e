"""Rows of tokens with weights as a torch dataset, packed into lines, and their batches as tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trajkit._core.lazy import need
from trajkit.errors import DataError

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
        self.table = table
        self._tokens, self._weights = (table.column(name) for name in SCHEMA.names)
        self._bins = bins

    def packed(self, bins: Sequence[Sequence[int]]) -> TokenRows:
        """Return the same rows with these bins."""
        return TokenRows(self.table, bins)

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._tokens) if self._bins is None else len(self._bins)

    @property
    def lengths(self) -> Any:
        """Tokens of each item, as a numpy array."""
        chunks: Any = self._tokens.chunks  # lists, which the stubs take for any arrays
        none = np.zeros(0, dtype=np.int64)
        sizes = np.concatenate([none, *(np.diff(chunk.offsets.to_numpy()) for chunk in chunks)])
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


def collate(bins: Sequence[Bin], *, padding: int, shares: bool = False, width: int = 0) -> dict[str, Any]:
    """Build a batch with one line per bin, as tensors [lines, tokens].

    - `input_ids`: the tokens.
    - `position_ids`: the place of each token in its row. Without `shares`, transformers keeps the rows of a
      line apart by them (`find_packed_sequence_indices`).
    - `weights`: how much each token counts in the loss. The first token of a row counts nothing, because no
      earlier token predicts it.
    - `parents`: the place of the token before, which predicts this one.
    - `ends`, with `shares` only: tokens from this place on do not attend to the token.

    With `shares`, rows share common beginnings. A line is then a tree of tokens, and
    each row is a path from a root. A token attends to the tokens of its path alone, so it has the state that
    it would have in a row of its own, and the loss is the sum over the rows.

    Args:
        bins: Rows of each line. A row shares with the previous row, so rows that begin alike are neighbours.
        padding: The token after the end of a line.
        shares: Compute common beginnings of rows once.
        width: Minimum tokens per line.
    """
    torch = need("torch", extra="local")
    lines = [_line(item, shares=shares) for item in bins]
    width = max(width, *(len(line.input_ids) for line in lines))
    made = _Line(
        np.full((len(bins), width), padding),
        np.tile(np.arange(width), (len(bins), 1)),
        np.zeros((len(bins), width), dtype=np.float32),
        np.zeros((len(bins), width), dtype=np.int64),
        np.tile(np.arange(1, width + 1), (len(bins), 1)),  # padding attends to itself
    )
    for number, (item, line) in enumerate(zip(bins, lines, strict=True)):
        n_tokens = len(line.input_ids)
        for goal, values in zip(made, line, strict=True):
            goal[number, :n_tokens] = values
        if len(item.tokens) > 1:  # in a line of one row, padding continues it: attention is causal, and fast
            made.position_ids[number, n_tokens:] = np.arange(width - n_tokens)
    batch = {name: torch.from_numpy(values) for name, values in made._asdict().items()}
    if not shares:
        del batch["ends"]
    return batch


class _Line(NamedTuple):
    input_ids: Any
    position_ids: Any
    weights: Any
    parents: Any
    ends: Any


def _line(item: Bin, *, shares: bool) -> _Line:
    """Lay out the rows of a line, as numpy arrays."""
    n_most = sum(map(len, item.tokens))
    line = _Line(
        *(np.zeros(n_most, dtype=kind) for kind in (np.int64, np.int64, np.float32, np.int64, np.int64))
    )
    size = 0
    before: Any = np.zeros(0, dtype=np.int64)
    path: Any = np.zeros(0, dtype=np.int64)  # where the tokens of the row before are
    for row, weights in zip(item.tokens, item.weights, strict=True):
        n_shared = n_common(before, row) if shares else 0
        line.ends[path[n_shared:]] = size
        new = slice(size, size + len(row) - n_shared)
        before, path = row, np.concatenate([path[:n_shared], np.arange(new.start, new.stop)])
        line.input_ids[new] = row[n_shared:]
        line.position_ids[new] = np.arange(n_shared, len(row))
        line.parents[new] = np.concatenate([path[:1], path[:-1]])[n_shared:]
        line.weights[path[1:]] += weights[1:]
        size = new.stop
    line.ends[path] = size
    return _Line(*(values[:size] for values in line))


def n_common(one: Any, other: Any) -> int:
    """Return the number of tokens with which two rows begin alike."""
    n_least = min(len(one), len(other))
    differ = one[:n_least] != other[:n_least]
    return int(differ.argmax()) if differ.any() else n_least


_BATCHES_SORTED = 50
_TOKENS_SORTED = 1 << 25
"""As sort keys they take 134 MB."""


def buckets(lengths: Sequence[int] | NDArray[np.int64], batch_size: int, seed: Sequence[int]) -> list[int]:
    """Order rows so that the rows of a batch have similar lengths.

    Rows are shuffled, then sorted by length within every fifty batches, and the batches are shuffled. The
    batch with the longest row comes first, so that a lack of memory shows at once.

    Args:
        lengths: Tokens of each row.
        batch_size: Rows of a batch.
        seed: Seed of the order.
    """
    random = np.random.default_rng(list(seed))
    sizes = np.asarray(lengths, dtype=np.int64)
    shuffled = random.permutation(len(sizes))
    span = _BATCHES_SORTED * batch_size
    spans = [shuffled[start : start + span] for start in range(0, len(shuffled), span)]
    batches = [
        rows[start : start + batch_size]
        for rows in (each[np.argsort(-sizes[each], kind="stable")] for each in spans)
        for start in range(0, len(rows), batch_size)
    ]
    # the incomplete batch must stay last: torch itself cuts the order into batches
    rest = [batch for batch in batches if len(batch) < batch_size]
    full = [batch for batch in batches if len(batch) == batch_size]
    random.shuffle(full)
    full.sort(key=lambda batch: sizes[batch[0]] != sizes.max())
    return [int(row) for batch in (*full, *rest) for row in batch]


def pack(lengths: Sequence[int] | NDArray[np.int64], capacity: int) -> list[list[int]]:
    """Pack rows into few bins by best-fit decreasing: longest first, each into the fullest bin that fits.

    At most 11/9 of the fewest bins, and four more (Johnson et al. 1974, "Worst-case performance bounds for
    simple one-dimensional packing algorithms").

    Args:
        lengths: Tokens of each row.
        capacity: Maximum tokens per bin.

    Returns:
        Rows of each bin in order; bins are ordered by their first row.

    Raises:
        DataError: A row is longer than a bin.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    if len(sizes) and (longest := int(sizes.max())) > capacity:
        raise DataError(
            f"row {int(sizes.argmax())} has {longest:,} tokens, more than {capacity:,}",
            hint="allow longer rows with --max-length, or cut history when converting",
        )
    # bins by their free room, which has at most `capacity` different values
    open_bins: list[list[list[int]]] = [[] for _ in range(capacity + 1)]
    bins: list[list[int]] = []
    for row in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[row])
        room = next((left for left in range(size, capacity + 1) if open_bins[left]), None)
        if room is None:
            room, rows = capacity, list[int]()
            bins.append(rows)
        else:
            rows = open_bins[room].pop()
        rows.append(row)
        open_bins[room - size].append(rows)
    for rows in bins:
        rows.sort()
    return sorted(bins, key=lambda rows: rows[0])


def pack_rows(rows: TokenRows, capacity: int, *, shares: bool) -> list[list[int]]:
    """Pack rows into lines; with `shares`, a common beginning of rows takes room once.

    Then rows that begin alike go into one line, one after another, if that takes fewer lines than `pack`,
    which fills lines better but parts such rows.

    Args:
        rows: Rows, none longer than `capacity`.
        capacity: Maximum tokens per line.
        shares: Whether rows can share (`trajkit.training.local.base_model.can_share`).

    Returns:
        Rows of each line, those that begin alike next to each other.
    """
    tight = pack(rows.lengths, capacity)
    if not shares:
        return tight
    alike: list[list[int]] = []
    rank: dict[int, int] = {}
    room = -1
    before: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
    for number in _alphabetical(rows):
        row = rows[number].tokens[0]
        n_new = len(row) - n_common(before, row)
        if n_new > room:
            alike.append([])
            room, n_new = capacity, len(row)
        alike[-1].append(number)
        rank[number] = len(rank)
        room, before = room - n_new, row
    return alike if len(alike) < len(tight) else [sorted(line, key=rank.__getitem__) for line in tight]


def _alphabetical(rows: TokenRows) -> Iterator[int]:
    """Yield the numbers of rows, so that those that begin alike follow each other.

    Rows are sorted by their tokens, as many at a time as memory allows: an episode's are close together.
    """
    keys: list[tuple[bytes, int]] = []
    n_tokens = 0
    for number, length in enumerate(rows.lengths):
        keys.append((rows[number].tokens[0].astype(">i4").tobytes(), number))
        n_tokens += int(length)
        if n_tokens >= _TOKENS_SORTED:
            yield from (place for _, place in sorted(keys))
            keys, n_tokens = [], 0
    yield from (place for _, place in sorted(keys))
