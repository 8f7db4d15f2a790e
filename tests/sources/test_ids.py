"""Ids that a database streams as texts or as bytes."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.matrix import daily
from trajkit.sources.tensorzero.connect.tables import ids_as, texts_of


@given(st.lists(st.uuids().map(str)))
@pytest.mark.parametrize("kind", daily([pa.string(), pa.uuid()], 1))
def test_ids_of_either_type_are_the_same_texts(kind, texts):
    column = ids_as(texts, kind)
    assert column.type == kind
    assert texts_of(column) == texts
    assert texts_of(pa.chunked_array([column, column])) == texts * 2
