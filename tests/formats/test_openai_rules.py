from __future__ import annotations

from typing import Any

import pytest

from trajkit.formats.openai_rules import problems

USER: dict[str, Any] = {"role": "user", "content": "u"}
ANSWER: dict[str, Any] = {"role": "assistant", "content": "a"}


def call(call_id: str = "c1", name: str = "f") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def calling(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": list(calls), "weight": 0}


def returned(call_id: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": ""}


def said(*messages: dict[str, Any], **more: Any) -> list[str]:
    return [str(problem) for problem in problems({"messages": list(messages), **more})]


@pytest.mark.parametrize(
    "messages",
    [
        (USER, ANSWER),
        ({"role": "system", "content": "s", "name": "n"}, USER, {**ANSWER, "weight": 0}, USER, ANSWER),
        (USER, {**ANSWER, "weight": 1}),
        (USER, calling(call("a"), call("b")), returned("b"), returned("a"), ANSWER),
        (USER, calling(call("a")), returned("a"), calling(call("a")), returned("a"), ANSWER),
        (USER, {"role": "assistant", "tool_calls": [call()]}),
    ],
)
def test_a_row_in_order_has_no_problem(messages: tuple[dict[str, Any], ...]) -> None:
    assert said(*messages) == []


def test_keys_that_the_service_does_not_know_are_named() -> None:
    assert said(USER, ANSWER, weight=1) == ["weight: extra key"]
    assert said({**USER, "weight": 1}, ANSWER) == ["messages.0: weight in a message of role user"]
    assert said({**USER, "tool_calls": [call()]}, ANSWER)[0] == (
        "messages.0: tool_calls in a message of role user"
    )


def test_roles_are_those_of_the_row_schema() -> None:
    assert said({"role": "developer", "content": "d"}, ANSWER) == ["messages.0: unknown role 'developer'"]
    assert said({"content": "d"}, ANSWER) == ["messages.0: unknown role None"]


def test_the_last_message_is_an_answer_to_learn() -> None:
    assert said(ANSWER, USER) == ["messages: the last message is not the assistant's"]
    assert said() == ["messages: the last message is not the assistant's"]
    assert said(ANSWER) == ["messages: no message before the answer"]
    assert said(USER, {**ANSWER, "weight": 0}) == [
        "messages: nothing to learn: the last message has weight 0"
    ]


def test_a_weight_is_0_or_1() -> None:
    assert said(USER, {**ANSWER, "weight": 0.5}) == ["messages.1: weight other than 0 and 1 0.5"]


def test_empty_messages_are_named_except_the_results_of_tools() -> None:
    assert said({**USER, "content": ""}, ANSWER) == ["messages.0: empty user message"]
    assert said(USER, calling(call()), returned(), ANSWER) == []


def test_a_result_belongs_to_a_call_right_before_it() -> None:
    assert said(USER, returned("x"), ANSWER) == ["messages.1: tool result without its call 'x'"]
    assert said(USER, calling(call()), returned(), returned(), ANSWER) == [
        "messages.3: tool result without its call 'c1'"
    ]
    assert said(USER, {"role": "tool", "content": "r"}, ANSWER) == [
        "messages.1: tool message without the id of its call"
    ]


def test_a_call_in_the_prompt_has_its_result_right_after_it() -> None:
    assert said(USER, calling(call("a"), call("b")), returned("a"), USER, ANSWER) == [
        "messages.1.tool_calls.1.id: tool call without its result 'b'"
    ]


def test_ids_of_calls_are_there_once() -> None:
    assert said(USER, {"role": "assistant", "tool_calls": [call(""), call("a"), call("a")]}) == [
        "messages.1.tool_calls.0.id: tool call without an id",
        "messages.1.tool_calls.2.id: two tool calls with one id 'a'",
    ]


def test_names_of_functions_have_the_service_s_characters_and_length() -> None:
    kind = "function name other than 1 to 64 letters, digits, _ and -"
    assert said(USER, {"role": "assistant", "tool_calls": [call(name="go forward")]}) == [
        f"messages.1.tool_calls.0.function.name: {kind} 'go forward'"
    ]
    tools = [{"type": "function", "function": {"name": "n" * 65}}, {"type": "function", "function": {}}]
    assert said(USER, ANSWER, tools=tools) == [
        f"tools.0.function.name: {kind} {'n' * 65!r}",
        f"tools.1.function.name: {kind} None",
    ]


def test_special_tokens_are_found_wherever_text_is() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"<|fim_suffix|>": "<|im_end|>"}}}
    parts = {"role": "user", "content": [{"type": "text", "text": "a <|endoftext|>"}]}
    made = {**calling(call()), "weight": 1}
    made["tool_calls"][0]["function"]["arguments"] = '"<|im_start|>"'
    assert said(parts, made, tools=[tool]) == [
        "messages.0.content.0.text: special token <|endoftext|>",
        "messages.1.tool_calls.0.function.arguments: special token <|im_start|>",
        "tools.0.function.parameters: special token <|fim_suffix|>",
        "tools.0.function.parameters.<|fim_suffix|>: special token <|im_end|>",
    ]
    assert said({**USER, "content": "a <| b |> <|not_one|>"}, ANSWER) == []
