from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajkit.errors import DataError
from trajkit.training.local.packing import pack


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(50, 120))
def test_every_row_is_in_one_bin_and_no_bin_is_too_full(lengths: list[int], capacity: int) -> None:
    bins = pack(lengths, capacity)
    assert sorted(row for rows in bins for row in rows) == list(range(len(lengths)))
    assert all(sum(lengths[row] for row in rows) <= capacity for rows in bins)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(50, 120))
def test_at_most_one_bin_is_less_than_half_full(lengths: list[int], capacity: int) -> None:
    fills = [sum(lengths[row] for row in rows) for rows in pack(lengths, capacity)]
    assert sum(fill * 2 < capacity for fill in fills) <= 1


def test_a_perfect_fit_is_found() -> None:
    assert pack([6, 4, 7, 3, 5, 5], 10) == [[0, 1], [2, 3], [4, 5]]


def test_a_row_that_is_too_long_is_named() -> None:
    with pytest.raises(DataError, match=r"row 1 has 11 tokens, more than 10"):
        pack([3, 11], 10)


def test_nothing_packs_into_nothing() -> None:
    assert pack([], 10) == []
