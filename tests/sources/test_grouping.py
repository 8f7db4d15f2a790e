"""Which buckets are assembled at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from trajkit.sources.tensorzero.export.grouping import GROUP_STEPS, count_buckets, groups_of
from trajkit.sources.tensorzero.export.spool import Size

MB = 1_000_000


class Sized:
    """A spool of these sizes."""

    def __init__(self, sizes: Sequence[Size]) -> None:
        self._sizes = sizes
        self.n_buckets = len(sizes)

    def size(self, number: int) -> Size:
        return self._sizes[number]


def groups(sizes: Sequence[Size]) -> list[list[int]]:
    nothing = [Size(n_rows, 0, 0) for n_rows, _, _ in sizes]
    return [list(numbers) for numbers in groups_of(Sized(nothing), Sized(sizes))]  # type: ignore[arg-type]


def test_a_group_ends_where_it_is_nearest_to_its_steps() -> None:
    half = Size(GROUP_STEPS // 2 + 100, 0, 0)
    assert groups([half] * 5) == [[0, 1], [2, 3], [4]]


def test_few_long_steps_are_a_group_of_many_buckets_while_they_need_not_be_held() -> None:
    assert groups([Size(2_500, 60 * MB, 1 * MB)] * 10) == [[*range(8)], [8, 9]]
    assert groups([Size(2_500, 60 * MB, 50 * MB)] * 5) == [[0, 1], [2, 3], [4]]


def test_a_bucket_that_is_too_large_is_a_group() -> None:
    assert groups([Size(10, 900 * MB, 900 * MB), Size(10, 0, 0), Size(10, 0, 0)]) == [[0], [1, 2]]
    assert groups([Size(10 * GROUP_STEPS, 0, 0)] * 2) == [[0], [1]]


def test_no_steps_are_a_group() -> None:
    assert groups([Size(0, 0, 0)]) == [[0]]


@pytest.mark.parametrize(
    ("n_steps", "n_bytes", "n_buckets"),
    [(0, 0, 1), (1, 10, 1), (GROUP_STEPS, 0, 1), (5 * GROUP_STEPS, 230 * MB, 6), (50_000, 2_400 * MB, 40)],
)
def test_buckets_follow_the_steps_or_the_length_of_their_texts(
    n_steps: int, n_bytes: int, n_buckets: int
) -> None:
    assert count_buckets(n_steps, n_bytes) == n_buckets


def test_there_are_never_more_buckets_than_files_may_be_open() -> None:
    assert count_buckets(10**9, 10**15) <= 384
