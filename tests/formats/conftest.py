"""What hypothesis makes examples of: conversations as agents have them, and messages that make no sense."""

from __future__ import annotations

from hypothesis import strategies as st

from trajkit.formats.base import Example, one_answer
from trajkit.schema import Message

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "<|im_start|>",
        "a <| b",
        'x"}]}',
        '"type"',
        "User:\n",
        "\n\nAssistant:\n",
        "<think>\n",
        "\\u0041",
        "\x1b[0m\x00",
        "line\u2028line",
        '{"action": "go"}',
        "\ufeff",
    ]
)
_json = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | _text
_name = st.text("abz_-9", min_size=1, max_size=6)

_any_block = st.one_of(
    st.builds(dict, type=st.just("text"), text=_text),
    st.builds(dict, type=st.just("thought"), text=st.none() | _text),
    st.builds(dict, type=st.just("tool_call"), id=_text, name=_text, arguments=_text),
    st.builds(dict, type=st.just("tool_result"), id=_text, name=_text, result=_text),
    st.builds(dict, type=st.just("file"), mime_type=st.none() | st.sampled_from(["image/png", "text/csv"])),
    st.builds(dict, type=st.just("unknown"), data=_json),
)
_any_message = st.builds(
    lambda role, content: Message.model_validate({"role": role, "content": content}),
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.lists(_any_block, max_size=3),
)
_plain_message = st.builds(
    lambda role, text: Message.model_validate({"role": role, "content": [{"type": "text", "text": text}]}),
    st.sampled_from(["system", "user", "assistant"]),
    _text,
)
_tools = st.lists(
    st.fixed_dictionaries(
        {"name": _name, "description": _text, "parameters": st.just({"type": "object", "properties": {}})},
        optional={"strict": st.booleans() | st.none()},
    ),
    max_size=2,
).map(tuple)


@st.composite
def _turn(draw: st.DrawFn, number: int) -> list[Message]:
    """What the assistant says with calls of tools, then their results."""
    ids = [f"call_{number}_{i}" for i in range(draw(st.integers(0, 2)))]
    names = [draw(_name) for _ in ids]
    said = [{"type": "text", "text": draw(_text.filter(bool))}]
    thought = [{"type": "thought", "text": "hm"}] if draw(st.booleans()) else []
    calls = [
        {"type": "tool_call", "id": call_id, "name": name, "arguments": "{}"}
        for call_id, name in zip(ids, names, strict=True)
    ]
    results = [
        {"type": "tool_result", "id": call_id, "name": name, "result": draw(_text)}
        for call_id, name in zip(ids, names, strict=True)
    ]
    after = [{"type": "text", "text": draw(_text.filter(bool))}]
    values = [
        {"role": "assistant", "content": thought + said + calls},
        {"role": "user", "content": results + after},
    ]
    return [Message.model_validate(value) for value in values]


@st.composite
def conversation_examples(draw: st.DrawFn) -> Example:
    """Conversations with tools in the order that services want; the last answer is learned, others may be."""
    first = [("system", draw(_text.filter(bool))), ("user", draw(_text.filter(bool)))]
    messages = [
        Message.model_validate({"role": role, "content": [{"type": "text", "text": text}]})
        for role, text in first
    ]
    n_turns = draw(st.integers(0, 3))
    for number in range(n_turns):
        messages.extend(draw(_turn(number)))
    messages.append(draw(_turn(n_turns))[0])
    weights = [
        draw(st.sampled_from([0.0, 1.0])) if message.role == "assistant" else 0.0 for message in messages[:-1]
    ]
    return Example(tuple(messages), (*weights, 1.0), tools=draw(_tools))


ANY_EXAMPLES = st.builds(
    one_answer,
    prompt=st.lists(_any_message, max_size=4).map(tuple),
    answer=_any_message,
    tools=_tools,
    weight=st.sampled_from([1.0, 1.0, 0.5]),
)
"""Anything that the models allow, sense or not."""
PLAIN_EXAMPLES = st.builds(
    one_answer, prompt=st.lists(_plain_message, max_size=4).map(tuple), answer=_plain_message
)
"""Messages of one text, as most agents send them."""
