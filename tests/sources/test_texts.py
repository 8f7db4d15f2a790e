"""Texts are picked from the pieces that a file has them in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from trajkit.sources.tensorzero.texts import Texts, as_array


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts_are_picked_by_row_whatever_pieces_they_are_in(kind: pa.DataType) -> None:
    column = pa.chunked_array([["left out", "[é"], [], [None, "[x", "["]], kind).slice(1)
    texts = Texts(column, n_skipped=1)
    assert [bytes(text) for text in texts.at(np.array([2, 0, 3, 1]))] == [b"x", "é".encode(), b"", b""]


def test_a_column_without_pieces_has_no_texts() -> None:
    texts = Texts(pa.chunked_array([], pa.string()))
    assert texts.at(np.zeros(0, dtype=np.int64)) == []


def test_texts_make_the_values_of_an_array() -> None:
    texts = Texts(pa.chunked_array([["b", "dé"]], pa.string())).at(np.array([0, 1]))
    made = as_array([b"a", texts[0], b"c", texts[1]], np.array([2, 0, 4]))
    assert made.to_pylist() == ["ab", "", "cdé"]
