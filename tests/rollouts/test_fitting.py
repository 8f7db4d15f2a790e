"""What fits a schema, beside the `jsonschema` package's word on it."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.matrix import daily
from trajkit.rollouts.prompts.variant import fits

ACTION = {
    "type": "object",
    "properties": {"thinking": {"type": "string"}, "action": {"type": "string", "enum": ["go", "stay"]}},
    "required": ["thinking", "action"],
    "additionalProperties": False,
}
SCHEMAS: list[dict[str, Any]] = [
    ACTION,
    {"type": "object", "additionalProperties": {"type": ["integer", "null"]}},
    {"type": "array", "items": {"anyOf": [{"type": "number"}, {"const": "none"}]}},
    {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    {"allOf": [{"type": "object"}, {"required": ["action"]}], "properties": {"other": False}},
    {},
]
NAMES = st.sampled_from(["thinking", "action", "other"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 2.0, "go", "stay", "none", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("schema", daily(SCHEMAS, 3))
@given(value=VALUES)
def test_it_says_what_jsonschema_says(schema: dict[str, Any], value: Any) -> None:
    assert fits(value, schema) == jsonschema.Draft202012Validator(schema).is_valid(value)


def test_an_answer_of_an_agent_fits_or_does_not() -> None:
    assert fits({"thinking": "", "action": "go"}, ACTION)
    assert not fits({"action": "go"}, ACTION)
    assert not fits({"thinking": "", "action": "fly"}, ACTION)
    assert not fits({"thinking": "", "action": "go", "more": 1}, ACTION)
    assert not fits("go", ACTION)
