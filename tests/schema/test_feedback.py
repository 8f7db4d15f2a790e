from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajkit.schema import single_precision


@pytest.mark.parametrize("value", [0.7, 0.9, 0.1, -0.3, 0.0, 1.0, 1e10, 0.9578125])
def test_a_short_decimal_comes_back_from_32_bits_as_it_was(value):
    (stored,) = struct.unpack("<f", struct.pack("<f", value))
    assert single_precision(stored) == value


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_decimal_names_the_same_32_bit_float(stored):
    assert struct.pack("<f", single_precision(stored)) == struct.pack("<f", stored)
