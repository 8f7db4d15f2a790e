"""Decide how many buckets the steps are cut into on disk, and how many buckets are assembled at once."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence

from trajkit.sources.tensorzero.export.spool import Size, Spool, total

GROUP_STEPS = 20_000
"""Steps per assembly: more take more memory, fewer take more time, as each group is planned again."""
_HELD_BYTES = 120_000_000
"""Maximum bytes of a group in memory at once, unless one bucket has more."""
_GROUP_BYTES = 480_000_000
"""Most bytes of a group: where conversations do not go on byte for byte, their prompts are held too."""
_BUCKET_BYTES = 60_000_000
"""Bytes of a bucket, whose texts are held: long prompts make many buckets."""
_MAX_BUCKETS = 384
"""Each is an open file of two tables; if a process may open fewer files, there are fewer buckets."""
_SPARE_FILES = 64
_NOTHING = Size(0, 0, 0)


def count_buckets(n_steps: int, n_bytes: float) -> int:
    """The number of buckets on disk, from the number of steps and the length of their texts."""
    most = min(_MAX_BUCKETS, max(1, (_open_files() - _SPARE_FILES) // 2))
    n = math.ceil(max(n_steps / GROUP_STEPS, n_bytes / _BUCKET_BYTES, 1))
    # an even number, as two threads assemble: for the last of five groups one would wait for the other
    return min(n + n % 2 if n > 1 else 1, most)


def groups_of(inferences: Spool, calls: Spool) -> Iterator[Sequence[int]]:
    """The numbers of the buckets that are assembled at once, group by group."""
    first, group = 0, _NOTHING
    for number in range(inferences.n_buckets):
        bucket = inferences.size(number)
        more = total([bucket, calls.size(number)])._replace(n_rows=bucket.n_rows)
        if number > first and _is_too_much(group, more):
            yield range(first, number)
            first, group = number, _NOTHING
        group = total([group, more])
    yield range(first, inferences.n_buckets)


def may_be_one(size: Size) -> bool:
    """Whether groups of that size together take no more memory than the largest may."""
    return size.n_held <= _HELD_BYTES and size.n_bytes <= _GROUP_BYTES


def _is_too_much(group: Size, more: Size) -> bool:
    # buckets have about the same size: a group ends where its size is nearest to the goal
    return group.n_rows + more.n_rows / 2 > GROUP_STEPS or not may_be_one(total([group, more]))


def _open_files() -> int:
    """Return the number of files that this process may open at once."""
    if sys.platform == "win32":
        return 512
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_BUCKETS * 4 if limit == resource.RLIM_INFINITY else limit
