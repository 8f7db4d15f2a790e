from __future__ import annotations

from typing import Any

import pytest

from tests.formats.validation.rows import Check, called, chat

TOOL = {"role": "tool", "tool_call_id": "call_1", "content": "done"}
CALL = called()["messages"][1]["tool_calls"][0]


def with_(place: int, row: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """A row of which one message has these keys, too."""
    made = chat() if row is None else row
    made["messages"][place] |= keys
    return made


def talk(*messages: dict[str, Any], row: dict[str, Any] | None = None) -> dict[str, Any]:
    """A row, then these messages, then another one."""
    first = chat() if row is None else row
    return first | {"messages": [*first["messages"], *messages, *chat()["messages"]]}


def found(check: Check, row: Any, target: str = "openai") -> set[str]:
    rows = [row] + [chat()] * 9
    return {f"{finding.path} {finding.kind}" for finding in check(*rows, target=target).findings}


def test_good_rows_have_no_findings(check: Check) -> None:
    assert found(check, chat("hi", "yo", "and", "so")) == set()
    assert found(check, called()) == set()
    assert found(check, talk(TOOL, row=called())) == set()
    assert found(check, chat("a <| b |> <|not_one|>", "yo")) == set()


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (chat(weight=1), "$.weight extra key"),
        (chat(episode_id="e"), "$.episode_id extra key"),
        ({"messages": "hi"}, "$.messages a list of messages is expected, not a text"),
        ({"messages": []}, "$.messages no message"),
        ({"messages": ["hi"]}, "$.messages[0] a message is expected, not a text"),
        ({"messages": [{"content": "hi"}]}, "$.messages[0].role role is missing"),
        ({"messages": [{"role": "developer", "content": "hi"}]}, "$.messages[0].role unknown role"),
        ({"messages": [{"role": ["user"], "content": "hi"}]}, "$.messages[0].role unknown role"),
        (chat("hi"), "$.messages[0].role the last message is not the assistant's"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "$.messages no message before the answer"),
        (chat("hi", ""), "$.messages[1].content empty assistant message"),
        (chat("hi <|fim_suffix|>", "yo"), "$.messages[0].content special token"),
        (
            chat(
                tools=[{"type": "function", "function": {"name": "f", "parameters": {"<|fim_suffix|>": "a"}}}]
            ),
            "$.tools[0].function.parameters special token",
        ),
        (
            called(arguments='"<|im_start|>"'),
            "$.messages[1].tool_calls[0].function.arguments special token",
        ),
        (
            talk({"role": "tool", "content": "r"}),
            "$.messages[2].tool_call_id tool message without the id of its call",
        ),
        (with_(0, content=None), "$.messages[0].content user message without content"),
        (with_(0, content=3), "$.messages[0].content a text or a list of parts is expected, not a number"),
        (talk({"role": "system", "content": "s"}), "$.messages[2] a system message that is not the first"),
        (with_(1, weight=0.5), "$.messages[1].weight weight other than 0 and 1"),
        (with_(1, weight=0), "$.messages nothing to learn"),
        (with_(0, weight=1), "$.messages[0].weight 'weight' in a message of role user"),
        (
            called(arguments={"to": "north"}),
            "$.messages[1].tool_calls[0].function.arguments arguments are not a text",
        ),
        (
            called(arguments="north"),
            "$.messages[1].tool_calls[0].function.arguments arguments are not a JSON object",
        ),
        (called(name="move it"), "$.messages[1].tool_calls[0].function.name not a function name"),
        (
            called(name="fly"),
            "$.messages[1].tool_calls[0].function.name call of a tool that the row does not declare",
        ),
        (called(tools="move"), "$.tools a list of tools is expected, not a text"),
        (called(tools=[{"name": "move"}]), "$.tools[0] not a tool"),
        (chat(parallel_tool_calls="no"), "$.parallel_tool_calls true or false is expected, not a text"),
        (talk(TOOL), "$.messages[2].tool_call_id tool result without its call"),
        (talk(row=called()), "$.messages[1].tool_calls[0].id tool call without its result"),
        (called(name="n" * 65), "$.messages[1].tool_calls[0].function.name not a function name"),
        (talk(TOOL, TOOL, row=called()), "$.messages[3].tool_call_id tool result without its call"),
        (
            with_(1, called(), tool_calls=[CALL | {"id": ""}]),
            "$.messages[1].tool_calls[0].id tool call without an id",
        ),
        (
            with_(1, called(), tool_calls=[CALL] * 2),
            "$.messages[1].tool_calls[1].id two tool calls with one id",
        ),
        (called(tools=called()["tools"] * 2), "$.tools[1].function.name repeated tool"),
    ],
)
def test_a_flaw_is_found_at_its_place(check: Check, row: dict[str, Any], expected: str) -> None:
    assert expected in found(check, row)


def test_together_wants_turns(check: Check) -> None:
    row = {
        "messages": [{"role": "user", "content": t} for t in "ab"] + [{"role": "assistant", "content": "c"}]
    }
    assert found(check, row, "openai") == set()
    assert "$.messages[1] two messages of role user in a row" in found(check, row, "together")


def test_together_takes_no_two_results_in_a_row(check: Check) -> None:
    row = called()
    second = {**row["messages"][1]["tool_calls"][0], "id": "call_2"}
    row["messages"][1]["tool_calls"].append(second)
    row["messages"] += [TOOL, {**TOOL, "tool_call_id": "call_2"}, {"role": "assistant", "content": "there"}]
    assert found(check, row, "openai") == set()
    assert found(check, row, "together") == {"$.messages[3] two messages of role tool in a row"}


def test_trl_takes_arguments_as_an_object_and_hears_no_weights(check: Check) -> None:
    row = called(arguments={"to": "north"})
    row["messages"][1] |= {"weight": 1, "content": ""}
    assert found(check, row, "trl") == {"$.messages[1].weight weight is ignored"}
    assert any("not an object" in kind for kind in found(check, called(), "trl"))


def test_an_image_must_be_the_users_and_of_a_known_type(check: Check) -> None:
    def row(role: str, url: str) -> dict[str, Any]:
        part = {"type": "image_url", "image_url": {"url": url}}
        messages = [{"role": r, "content": [part] if r == role else "x"} for r in ("user", "assistant")]
        return {"messages": messages}

    good = "data:image/png;base64,aGk="
    assert found(check, row("user", good)) == set()
    at = "$.messages[0].content[0].image_url.url"
    assert found(check, row("user", "http://x/a.png")) == {
        f"{at} an image that is neither at https:// nor inline"
    }
    assert found(check, row("user", "data:image/gif;base64,aGk=")) == {f"{at} an image of another type"}
    assert found(check, row("user", "data:image/png;base64,!!")) == {f"{at} an image that is not base64"}
    assert found(check, row("assistant", good)) == {
        "$.messages[1].content[0] an image in a message of role assistant"
    }
    assert found(check, row("user", good), "nebius") == {"$.messages[0].content[0] an image"}
