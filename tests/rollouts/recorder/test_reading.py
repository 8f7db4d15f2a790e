"""Whatever a service sends, the recording can be read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajkit.rollouts.recorder.calls import sse
from trajkit.rollouts.recorder.calls.chat import ChatReader
from trajkit.rollouts.recorder.calls.reading import read_call
from trajkit.rollouts.recorder.calls.responses import ResponsesReader
from trajkit.schema import Episode, Transition
from trajkit.store.arrow import rows_of

WORDS = st.sampled_from(
    [
        "messages", "role", "content", "tool_calls", "id", "type", "function", "name", "arguments", "input",
        "output", "choices", "message", "delta", "index", "text", "user", "assistant", "tool", "system",
        "function_call", "reasoning", "summary", "usage", "data:", "�",
    ]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "system", "other", None])},
        optional={
            "content": VALUES,
            "tool_calls": VALUES,
            "type": WORDS,
            "refusal": VALUES,
            "output": VALUES,
        },
    ),
    max_size=3,
)


def header(api: str, *, is_stream: bool) -> dict:
    return {
        "id": "01a1ff0f-6efe-75d0-b251-e937999a88b1",
        "api": api,
        "is_stream": is_stream,
        "started_at": "2026-01-01T00:00:00+00:00",
        "latency_s": 0.5,
    }


def step_of(api: str, body: bytes, answer: bytes, *, is_stream: bool = False) -> Transition:
    reader = ChatReader() if api == "chat" else ResponsesReader({})
    call = read_call(header(api, is_stream=is_stream), body, answer, reader)
    prompt = {"messages": call.said.prompt} if call.said.is_prompt_known else {"input": call.request}
    return Transition.model_validate(call.step.model_copy(update=prompt).model_dump())


@settings(deadline=None, max_examples=80)
@given(
    api=st.sampled_from(["chat", "responses"]),
    request=st.fixed_dictionaries(
        {}, optional={"messages": MESSAGES, "input": MESSAGES | VALUES, "tools": VALUES}
    )
    | VALUES,
    answer=st.fixed_dictionaries(
        {},
        optional={
            "choices": st.lists(st.fixed_dictionaries({}, optional={"message": VALUES, "delta": VALUES})),
            "output": MESSAGES,
            "usage": VALUES,
            "status": WORDS,
        },
    )
    | VALUES,
    is_stream=st.booleans(),
)
def test_any_json_becomes_a_step_that_a_store_can_hold(api, request, answer, is_stream):
    sent, answered = json.dumps(request).encode(), json.dumps(answer).encode()
    if is_stream:
        answered = b"data: " + answered + b"\n\n" + b"data: " + answered[: len(answered) // 2] + b"\n\n"
    step = step_of(api, sent, answered, is_stream=is_stream)
    episode = Episode(episode_id="e", source="recorder", steps=(step.model_copy(update={"messages": None}),))
    assert json.loads(rows_of(episode)["steps"][0]["completion"] or "{}") is not None


@given(st.binary(max_size=40), st.binary(max_size=40), st.booleans())
def test_any_bytes_become_a_step(body, answer, is_stream):
    step = step_of("chat", body, answer, is_stream=is_stream)
    assert step.loss_weight == 0


def test_what_only_half_makes_sense_keeps_the_half_that_does(wire):
    ask = json.dumps({"messages": [{"role": "user", "content": "go"}]}).encode()
    step = step_of("chat", ask, b'{"choices": 7}')
    assert (step.messages[0].text, step.mask_reason) == ("go", "answer not understood")
    assert step.completion.content[0].data == {"choices": 7}
    step = step_of("chat", b'{"messages": "go"}', json.dumps(wire.completion()).encode())
    assert (step.messages, step.mask_reason) == (None, "request not understood")
    assert step.input == {"messages": "go"}
    assert step.completion.content[0].data["choices"][0]["message"]["content"] == "hello"


@pytest.mark.parametrize("arguments", ['{"x": NaN}', '{"x": "\\ud800"}', "{bad"])
def test_arguments_that_are_no_json_are_the_action_as_text(wire, arguments):
    ask = json.dumps({"messages": []}).encode()
    step = step_of("chat", ask, json.dumps(wire.completion(None, calls=[("1", "go", arguments)])).encode())
    assert step.action == [{"name": "go", "arguments": arguments}]
    assert step.mask_reason is None


@pytest.mark.parametrize("depth", [300, 700, 100_000])
def test_json_that_is_too_deep_is_kept_as_text(wire, depth):
    ask = json.dumps({"messages": [{"role": "user", "content": "go"}]}).encode()
    step = step_of("chat", ask, b'{"choices": [' + b"[" * depth + b"]" * depth + b"]}")
    assert step.mask_reason == "answer not understood"
    assert step.messages[0].text == "go"
    deep = b'{"messages": [{"role": "user", "content": ' + b"[" * depth + b"]" * depth + b"}]}"
    step = step_of("chat", deep, json.dumps(wire.completion()).encode())
    assert step.mask_reason in (None, "request not understood")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'data: {"a":1}\n\ndata: {"a":2}\n\ndata: [DONE]\n\n', [1, 2]),
        (b'data: {"a":1}\r\n\r\ndata: {"a":2}\r\n\r\n', [1, 2]),
        (b'event: x\ndata: {"a":1}\n\ndata: {"a":2}\n\n', [1, 2]),
        (b'data: {"a":1}\n\ndata:{"a":2}\n\n', [1, 2]),
        (b'data: {"a":\ndata: 1}\n\ndata: {"a":2}\n\n', [1, 2]),
        (b'data: {"a":1}\n\ndata: {"a":1},{"a":2}\n\ndata: {"a":3}\n\n', [1, 3]),
        (b'data: {"a":"data: x"}\n\n: note\n\ndata: 7\n\n', ["data: x"]),
        (b'data: {"a":1}\n\ndata: {"a":', [1]),
        (b'data: {"a":"\\ud800"}\n\n', ["\ud800"]),
        (b"data: [DONE]\n\n", []),
        (b"", []),
    ],
)
def test_events_of_a_stream_are_read_however_they_are_written(body: bytes, expected: list[object]) -> None:
    assert [event["a"] for event in sse.events(body)] == expected
