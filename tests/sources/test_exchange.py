"""What a model was asked and answered is read in the form of each API."""

from __future__ import annotations

from typing import Any

import pytest

from trajkit.schema import Role, ThoughtBlock, ToolCallBlock, ToolResultBlock
from trajkit.sources.exchange import exchange_of

ASK = {"role": "user", "content": "Rain?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
OPENAI = (
    {"model": "m", "messages": [ASK], "temperature": 0.2, "stream": True},
    {
        "model": "m-1",
        "choices": [
            {
                "message": {"role": "assistant", "content": "Yes.", "tool_calls": [CALL]},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    },
)
ANTHROPIC = (
    {"model": "m-1", "system": [{"type": "text", "text": "Be brief."}], "messages": [ASK], "max_tokens": 5},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Yes."},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 2},
    },
)
BEDROCK = (
    {
        "modelId": "m-1",
        "system": [{"text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"text": "Rain?"}]},
            {
                "role": "assistant",
                "content": [{"toolUse": {"toolUseId": "c0", "name": "look", "input": {"x": 1}}}],
            },
            {
                "role": "user",
                "content": [{"toolResult": {"toolUseId": "c0", "content": [{"text": "Rain."}]}}],
            },
        ],
        "inferenceConfig": {"temperature": 0.2},
        "toolConfig": {
            "tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": {"type": "object"}}}}],
        },
    },
    {
        "output": {
            "message": {
                "role": "assistant",
                "content": [{"text": "Yes."}, {"toolUse": {"toolUseId": "c1", "name": "look", "input": {}}}],
            }
        },
        "stopReason": "tool_use",
        "usage": {"inputTokens": 3, "outputTokens": 2},
    },
)
GEMINI = (
    {
        "model": "m-1",
        "contents": [
            {"role": "user", "parts": [{"text": "Rain?"}]},
            {"role": "model", "parts": [{"function_call": {"name": "look", "args": {"x": 1}}}]},
            {"role": "user", "parts": [{"function_response": {"name": "look", "response": {"it": "rains"}}}]},
        ],
        "config": {
            "system_instruction": "Be brief.",
            "tools": [{"function_declarations": [{"name": "look", "parameters": {"type": "object"}}]}],
        },
    },
    {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [{"text": "Yes."}, {"function_call": {"id": "c1", "name": "look", "args": {}}}],
                },
                "finish_reason": "STOP",
            }
        ],
        "usage_metadata": {"prompt_token_count": 3, "candidates_token_count": 2},
    },
)
LANGCHAIN = (
    [[{"type": "system", "content": "Be brief."}, {"type": "human", "content": "Rain?"}]],
    {
        "generations": [
            [
                {
                    "text": "Yes.",
                    "message": {
                        "type": "ai",
                        "content": "Yes.",
                        "tool_calls": [{"id": "c1", "name": "look", "args": {}, "type": "tool_call"}],
                    },
                }
            ]
        ]
    },
)
RESPONSES = (
    {"model": "m", "instructions": "Be brief.", "input": "Rain?"},
    {
        "model": "m-1",
        "status": "completed",
        "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        ],
        "usage": {"input_tokens": 3, "output_tokens": 2},
    },
)


@pytest.mark.parametrize(
    "logged", [OPENAI, ANTHROPIC, BEDROCK, GEMINI, LANGCHAIN, RESPONSES], ids=lambda _: ""
)
def test_each_api_gives_the_same_question_and_answer(logged: tuple[Any, Any]) -> None:
    found = exchange_of(*logged)
    assert found.extra == {}
    assert found.prompt is not None
    assert next(one.text for one in found.prompt if one.role == Role.USER) == "Rain?"
    assert found.answer is not None
    assert (found.answer.role, found.answer.text) == (Role.ASSISTANT, "Yes.")
    (call,) = [one for one in found.answer.content if isinstance(one, ToolCallBlock)]
    assert (call.id, call.name, call.arguments) == ("c1", "look", "{}")
    if logged is not LANGCHAIN:
        assert (found.n_input_tokens, found.n_output_tokens) == (3, 2)
        assert found.model_name == "m-1"
    if logged is not OPENAI:
        assert (found.prompt[0].role, found.prompt[0].text) == (Role.SYSTEM, "Be brief.")


@pytest.mark.parametrize("logged", [BEDROCK, GEMINI], ids=lambda _: "")
def test_tools_and_their_results_are_read(logged: tuple[Any, Any]) -> None:
    found = exchange_of(*logged)
    assert found.tools is not None
    assert (found.tools[0]["name"], found.tools[0]["parameters"]) == ("look", {"type": "object"})
    results = [one for each in found.prompt or () for one in each.content if isinstance(one, ToolResultBlock)]
    calls = [one for each in found.prompt or () for one in each.content if isinstance(one, ToolCallBlock)]
    assert [one.id for one in results] == [one.id for one in calls]
    assert (calls[0].arguments, results[0].result) in [('{"x":1}', "Rain."), ('{"x":1}', '{"it": "rains"}')]


def test_reasons_have_the_words_of_openai() -> None:
    reasons = [exchange_of(*one).finish_reason for one in (OPENAI, ANTHROPIC, BEDROCK, GEMINI, RESPONSES)]
    assert reasons == ["stop", "tool_calls", "tool_calls", "stop", "tool_calls"]


def test_settings_are_what_is_no_content() -> None:
    assert exchange_of(*OPENAI).settings == {"temperature": 0.2}
    assert exchange_of(*BEDROCK).settings == {"inferenceConfig": {"temperature": 0.2}}


def test_texts_are_a_question_and_an_answer() -> None:
    for asked, said in [("Rain?", "Yes."), ({"prompt": "Rain?"}, {"choices": [{"text": "Yes."}]})]:
        found = exchange_of(asked, said)
        assert found.prompt is not None
        assert found.answer is not None
        assert (found.prompt[0].text, found.answer.text) == ("Rain?", "Yes.")


def test_a_thought_is_one() -> None:
    said = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}]}
    answer = exchange_of(None, said).answer
    assert answer is not None
    assert isinstance(answer.content[0], ThoughtBlock)


@pytest.mark.parametrize(
    "odd",
    [
        {"x": 1},
        [{"x": 1}],
        {"messages": [{"role": "narrator"}]},
        {"messages": [1]},
        {"contents": [1]},
        {"choices": []},
        {"input": [{"role": "user", "content": [{"type": "text", "text": 3}]}], "output": [{"a": 1}]},
        7,
    ],
    ids=str,
)
def test_what_is_not_known_is_kept_verbatim(odd: Any) -> None:
    """Neither an exception nor a loss."""
    asked = exchange_of(odd, None)
    assert (asked.prompt is None) == (asked.extra == {"request": odd})
    said = exchange_of(None, odd)
    assert (said.answer is None) == (said.extra == {"response": odd})


def test_nothing_is_nothing() -> None:
    found = exchange_of(None, None)
    assert (found.prompt, found.answer, found.tools, found.extra) == (None, None, None, {})
