"""Pack rows of tokens into lines, to reduce padding and to compute once what rows have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from trajkit.errors import DataError
from trajkit.training.local.tokens.batch import TokenRows, n_common

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
        capacity: Most tokens of a bin.

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
    """Pack rows into lines; with `shares`, a beginning that rows have in common takes room once.

    Then rows that begin alike go into one line, one after another, if that takes fewer lines than `pack`,
    which fills lines better but parts such rows.

    Args:
        rows: Rows, none longer than `capacity`.
        capacity: Most tokens of a line.
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
