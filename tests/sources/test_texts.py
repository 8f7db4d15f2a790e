"""What passes through an export in Arrow: texts by row, ids of either type, observations in order."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.matrix import daily
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect.tables import ids_as, texts_of
from trajkit.sources.tensorzero.export.choose import open_workspace
from trajkit.sources.tensorzero.export.texts.observed import OBSERVATION, Observing
from trajkit.sources.tensorzero.export.texts.selected import Texts, as_array


def test_texts_are_picked_by_row_whatever_pieces_they_are_in() -> None:
    column = pa.chunked_array([["left out", "[é"], [], [None, "[x", "["]], pa.string()).slice(1)
    texts = Texts(column, n_skipped=1)
    rows = np.array([2, 0, 3, 1])
    assert [bytes(text) for text in texts.at(rows)] == [b"x", "é".encode(), b"", b""]
    assert as_array([texts.picked(rows)], np.full(4, True)).to_pylist() == ["x", "é", "", ""]


def test_a_column_without_pieces_has_no_texts() -> None:
    texts = Texts(pa.chunked_array([], pa.string()))
    none = np.zeros(0, dtype=np.int64)
    assert texts.at(none) == []
    assert as_array([texts.picked(none)], np.array([False])).to_pylist() == [None]


@given(
    pieces=st.lists(st.lists(st.none() | st.text(max_size=30), max_size=5), max_size=4),
    is_valid=st.lists(st.booleans(), min_size=1, max_size=20),
    random=st.randoms(use_true_random=False),
)
def test_texts_make_the_values_of_an_array(
    pieces: list[list[str | None]], is_valid: list[bool], random: Random
) -> None:
    firsts = ["", "short", "thirteen char", "e\u0301" * 9]
    seconds = [text or "" for piece in [["at least one"], *pieces] for text in piece]
    column = pa.chunked_array([["at least one"], *pieces], pa.string())
    chosen = [(random.randrange(len(firsts)), random.randrange(len(seconds))) for _ in range(sum(is_valid))]
    rows = np.array(chosen, dtype=np.int64).reshape(-1, 2)
    parts = [Texts(pa.chunked_array([firsts])).picked(rows[:, 0]), Texts(column).picked(rows[:, 1])]
    made = as_array(parts, np.array(is_valid))
    made.validate(full=True)
    expected = iter([firsts[first] + seconds[second] for first, second in chosen])
    assert made.to_pylist() == [next(expected) if is_there else None for is_there in is_valid]


@given(st.lists(st.uuids().map(str)))
@pytest.mark.parametrize("kind", daily([pa.string(), pa.uuid()], 1))
def test_ids_of_either_type_are_the_same_texts(kind: pa.DataType, texts: list[str]) -> None:
    column = ids_as(texts, kind)
    assert column.type == kind
    assert texts_of(column) == texts
    assert texts_of(pa.chunked_array([column, column])) == texts * 2


def test_many_observations_stay_in_order() -> None:
    n_rows = 600_000  # of fewer DuckDB gives them in order, whatever it was asked
    texts = [
        f'{{"messages":[{{"role":"user","content":[{{"type":"text","text":"{n}"}}]}}]}}'
        for n in range(n_rows)
    ]
    batch = pa.RecordBatch.from_pydict({"input": pa.array(texts, pa.string())})
    with open_workspace() as opened:
        workspace = opened()
        workspace.connection.execute("SET threads = 4")
        observing = Observing(workspace.connection, ExportRequest(), workspace.unreadable)
        (observed,) = observing.of(iter([batch]))
    assert observed.column(OBSERVATION.name).to_pylist() == [str(n) for n in range(n_rows)]
