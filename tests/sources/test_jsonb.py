"""What JSONB does to JSON is undone where it would show."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sources.row_database import spelled
from trajkit.sources.tensorzero.connect import jsonb

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12) | st.sampled_from(
    [
        '{"text":"x","type":"text"}',
        '"type":"text"}',
        '{"text": "',
        "\\",
        '\\"',
        '", "type": "text"}',
        "{",
        '{"',
        '"type":"file"',
        '"value":',
        '\\", "type":"x"',
        "\\u0041",
        "\x1f",
        "é/",
        '},{"role":"',
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
BLOCKS = (
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS)
    | st.builds(lambda text, more: {"type": "text", "text": text, "zz": more, "id": more}, TEXTS, JSON)
    | st.builds(lambda data: {"type": "unknown", "data": data}, JSON)
    | st.builds(lambda text: {"type": "tool_call", "id": text, "name": "n", "arguments": text}, TEXTS)
)
MESSAGES = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "assistant"]),
        st.lists(BLOCKS, max_size=3),
    ),
    max_size=3,
)


def as_jsonb(value: Any) -> str:
    """As Postgres gives it back: keys by their length in bytes, then by their bytes, and spaces."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return "{" + ", ".join(f"{spelled(key)}: {as_jsonb(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_jsonb, value)) + "]"
    return spelled(value)


def respelled(values: list[str | None], sql: str) -> list[str | None]:
    batch = pa.RecordBatch.from_pydict({"a": pa.array(values, pa.string())})
    schema = pa.schema([("a", pa.string())])
    (made,) = jsonb.respelled(iter([batch]), schema, {"a": sql})
    found: list[str | None] = made.column("a").to_pylist()
    return found


@settings(max_examples=20, deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=10))
def test_messages_mean_the_same_and_plain_ones_are_spelled_as_the_gateway_does(
    lists: list[list[dict[str, Any]]],
) -> None:
    found = respelled([as_jsonb(messages) for messages in lists], jsonb.messages("a"))
    for messages, text in zip(lists, found, strict=True):
        assert text is not None
        assert json.loads(text) == messages
        if all(set(block) == {"type", "text"} for message in messages for block in message["content"]):
            # DuckDB spells control characters in upper case: such a text is looked into anyway
            expected = spelled(messages)
            assert text == expected or "\\u" in expected


def test_null_stays_null_and_an_empty_list_empty() -> None:
    assert respelled([None, "[]"], jsonb.messages("a")) == [None, "[]"]


def test_numbers_beyond_64_bits_stay_as_they_are() -> None:
    assert respelled(['{"a": 123456789012345678901234567890}'], jsonb.compact("a")) == [
        '{"a":123456789012345678901234567890}'
    ]
