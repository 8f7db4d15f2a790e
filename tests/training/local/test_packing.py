from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajkit.errors import DataError
from trajkit.training.local.tokens.batch import SCHEMA, TokenRows, collate, pack, pack_rows


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


ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=30)


@given(ROWS, st.integers(12, 40))
def test_lines_that_share_have_every_row_once_and_are_no_more(rows: list[list[int]], capacity: int) -> None:
    table = pa.table({"input_ids": rows, "weights": [[1.0] * len(row) for row in rows]}, schema=SCHEMA)
    found = pack_rows(TokenRows(table), capacity, shares=True)
    assert sorted(row for line in found for row in line) == list(range(len(rows)))
    lines = TokenRows(table, found)
    batch = collate([lines[number] for number in range(len(lines))], padding=0, shares=True)
    assert batch["input_ids"].shape[1] <= capacity
    assert batch["weights"].sum() == sum(map(len, rows)) - len(rows)  # the first token of a row has none
    assert len(found) <= len(pack([len(row) for row in rows], capacity))
    for line in found:  # rows that begin alike are neighbours
        paths = [rows[number] for number in line]
        assert paths == sorted(paths)
