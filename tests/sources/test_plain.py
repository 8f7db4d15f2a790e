"""What is seen at a glance to be plain text is what the pattern says is plain text."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.matrix import daily
from trajkit.sources.tensorzero.export.texts import plain

BEGIN, END = '[{"role":"user","content":[{"type":"text","text":"', '"}]}]'
FRAGMENTS = st.sampled_from(
    [
        BEGIN,
        END,
        '"',
        "\\",
        '\\"',
        "\\n",
        "\\t",
        "\\u0041",
        "\\/",
        "\n",
        "é",
        "some words",
        '{"role":"user"}',
        '","',
        "",
    ]
)


def column(texts: list[str | None]) -> pa.Array[Any]:
    """As a batch of a stream may have it: a part of more."""
    return pa.array([None, *texts], pa.string()).slice(1)


def says_pattern(texts: list[str | None]) -> bool:
    return all(plain._matches(column(texts), plain._ONE).to_pylist())


@pytest.mark.parametrize("look_bytes", daily([7, plain._LOOK_BYTES, 1], 2))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(middles=st.lists(st.lists(FRAGMENTS, max_size=5).map("".join), min_size=1, max_size=4))
@example(middles=["\\", '"'])  # one has a quote too few, another one too many
@example(middles=['"', "\\"])
@example(middles=["\\" * 2 + '"'])
def test_what_is_seen_at_a_glance_is_what_the_pattern_says(
    monkeypatch: pytest.MonkeyPatch, look_bytes: int, middles: list[str]
) -> None:
    monkeypatch.setattr(plain, "_LOOK_BYTES", look_bytes)
    texts: list[str | None] = [f"{BEGIN}{middle}{END}" for middle in middles]
    is_usual = not any("\\\\" in middle or "\\u" in middle or "\\/" in middle for middle in middles)
    seen = plain._are_one_text(column(texts))
    assert seen == (says_pattern(texts) and is_usual)


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [None],
        [""],
        [BEGIN[:-1] + END],  # the quote that begins the text would end it, too
        [f"{BEGIN}a{END}", None],
        [f"{BEGIN}a{END}".replace("user", "assistant")],
        [f"{BEGIN}a{END}", "[]"],
    ],
)
def test_what_is_not_framed_as_usual_is_left_to_the_pattern(texts: list[str | None]) -> None:
    assert not plain._are_one_text(column(texts))
