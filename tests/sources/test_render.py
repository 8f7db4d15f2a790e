"""Whatever an input looks like, it becomes a prompt or a reason why not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajkit.errors import DataError
from trajkit.sources.tensorzero.render.config import Template, Variant
from trajkit.sources.tensorzero.render.engine import Engine
from trajkit.sources.tensorzero.render.prompt import Renderer

pytest.importorskip("minijinja", reason="pip install 'trajkit[render]'")

TEMPLATES = {
    "system": Template("system", "{{ a }}", takes_text=False, is_wrapper=False),
    "user": Template("user", "{% for k in a %}{{ k }}{% endfor %}{{ b|tojson }}", True, False),
    "assistant": Template("assistant", "{{ assistant_text }}", takes_text=True, is_wrapper=True),
}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
BLOCKS = VALUES | st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "template", "raw_text", "tool_call", "unknown"]) | VALUES},
    optional={
        "text": VALUES,
        "value": VALUES,
        "name": st.sampled_from(["user", "assistant", "gone"]) | VALUES,
        "arguments": st.fixed_dictionaries({"a": VALUES}, optional={"b": VALUES}) | VALUES,
    },
)
MESSAGES = VALUES | st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant"]) | VALUES,
        "content": st.lists(BLOCKS, max_size=3) | BLOCKS,
    }
)
INPUTS = VALUES | st.fixed_dictionaries(
    {"messages": st.lists(MESSAGES, max_size=3) | VALUES},
    optional={"system": VALUES | st.fixed_dictionaries({"a": VALUES})},
)
ENGINE = Engine({}.get)


@settings(max_examples=150, deadline=None)
@given(INPUTS, st.booleans(), st.sets(st.sampled_from(sorted(TEMPLATES))))
def test_an_input_of_any_shape_is_a_prompt_or_has_a_reason(
    given_input: Any, is_prefixed: bool, names: set[str]
) -> None:
    variant = Variant({name: TEMPLATES[name] for name in names}, is_prefixed)
    reason, prompt = "", None
    try:
        prompt = Renderer(ENGINE, variant).prompt(json.dumps(given_input))
    except DataError as error:
        reason = error.message
    assert (prompt is None) == bool(reason)
    assert len(reason) < 120
    if prompt is None:
        return
    messages = json.loads(prompt.messages)
    assert [set(message) for message in messages] == [{"role", "content"}] * len(messages)
    prompt.messages.encode()
    assert prompt.system is None or prompt.system.encode()[:0] == b""
    assert prompt.system is not None or not is_prefixed


@given(st.text())
@settings(max_examples=60, deadline=None)
def test_a_text_that_is_not_an_input_has_a_reason(text: str) -> None:
    with pytest.raises(DataError):
        Renderer(ENGINE, Variant(TEMPLATES, is_prefixed=False)).prompt(text)
