from __future__ import annotations

import base64
import hashlib

from trajkit.formats.chat.message import message_of
from trajkit.rollouts.recorder.calls.chat import ChatReader
from trajkit.schema import (
    FileBlock,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
)

PIXEL = base64.b64encode(b"\x89PNG pixel").decode()


def test_every_kind_of_part_has_its_block():
    sent = {
        "role": "user",
        "content": [
            {"type": "text", "text": "look"},
            {"type": "text", "text": "again", "cache_control": {"type": "ephemeral"}},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            {"type": "file", "file": {"file_id": "file-1", "filename": "a.pdf"}},
            {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "mp3"}},
            {"type": "new_thing", "value": [1, 2]},
        ],
    }
    digest = {"sha256": hashlib.sha256(b"\x89PNG pixel").hexdigest(), "n_bytes": 10}
    assert message_of(sent, {}).content == (
        TextBlock(text="look"),
        TextBlock(text="again"),
        UnknownBlock(data={"beside": "text", "cache_control": {"type": "ephemeral"}}),
        FileBlock(source_url="https://example.org/a.png", mime_type="image/*", detail="low"),
        FileBlock(mime_type="image/png", storage_path=digest),
        FileBlock(filename="a.pdf", storage_path={"file_id": "file-1"}),
        FileBlock(mime_type="audio/mpeg", storage_path=digest),
        UnknownBlock(data={"type": "new_thing", "value": [1, 2]}),
    )


def test_what_an_assistant_says_beside_text_is_kept():
    sent = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "first this",
        "reasoning_details": [{"type": "reasoning.text", "signature": "s"}],
        "refusal": "no",
        "annotations": [],
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "go", "arguments": "{bad"}, "index": 0},
            {
                "id": "2",
                "type": "function",
                "function": {"name": "go", "arguments": "{}"},
                "extra_content": 7,
            },
            {"id": "3", "type": "custom", "custom": {"name": "sql", "input": "select"}},
        ],
        "name": "planner",
    }
    assert message_of(sent, {}).content == (
        ThoughtBlock(text="first this", extra_data=[{"type": "reasoning.text", "signature": "s"}]),
        UnknownBlock(data={"type": "refusal", "refusal": "no"}),
        ToolCallBlock(id="1", name="go", arguments="{bad"),
        ToolCallBlock(id="2", name="go", arguments="{}"),
        UnknownBlock(data={"tool_call_id": "2", "extra_content": 7}),
        ToolCallBlock(id="3", name="sql", arguments="select"),
        UnknownBlock(data={"tool_call_id": "3", "type": "custom"}),
        UnknownBlock(data={"name": "planner"}),
    )


def test_results_of_tools_have_the_name_of_their_call():
    reader = ChatReader()
    sent = [
        {"role": "developer", "content": "rules"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "a door"}]},
        {"role": "function", "name": "old", "content": "way"},
        {"role": "narrator", "content": "meanwhile"},
    ]
    system, _, result, old, other = reader.messages(sent)
    assert system.role == Role.SYSTEM
    assert result.content == (ToolResultBlock(id="1", name="look", result="a door"),)
    assert old.content == (ToolResultBlock(id="", name="old", result="way"),)
    assert other.content == (UnknownBlock(data={"role": "narrator", "content": "meanwhile"}),)
    assert reader.said({"messages": sent}, {}).extra["developer_messages"] == [0]


def test_a_reader_that_goes_back_forgets_what_it_saw_after():
    reader = ChatReader()
    first = {"role": "user", "content": "one"}
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "1", "content": "x"}
    reader.messages([first, {"role": "assistant", "tool_calls": [call]}, result])
    assert reader.messages([first, result])[1].content[0].name == ""


def test_tools_are_normalised_and_others_kept_as_sent():
    parameters = {"type": "object", "properties": {"headers": {"type": "string"}}}
    request = {
        "messages": [],
        "tools": [
            {
                "type": "function",
                "function": {"parameters": parameters, "name": "go", "description": "d", "strict": True},
            },
            {"type": "custom", "custom": {"name": "sql"}},
        ],
        "functions": [{"name": "old", "parameters": {}}],
    }
    assert ChatReader().said(request, {}).tools == (
        {"name": "go", "description": "d", "parameters": parameters, "strict": True},
        {"type": "custom", "custom": {"name": "sql"}},
        {"name": "old", "parameters": {}},
    )


def test_log_probabilities_ids_of_tokens_and_other_choices_are_kept(wire):
    body = wire.completion("a b", prompt_token_ids=[1, 2])
    body["usage"] |= {"prompt_tokens": 2, "completion_tokens": 2}
    body["choices"][0] |= {
        "logprobs": {"content": [{"token": "a", "logprob": -0.5}, {"token": " b", "logprob": -0.25}]},
        "token_ids": [7, 8],
    }
    body["choices"].append({"index": 1, "message": {"role": "assistant", "content": "c"}})
    said = ChatReader().said({"messages": [], "n": 2, "temperature": 1}, body)
    assert said.facts["logprobs"] == (-0.5, -0.25)
    assert (said.facts["prompt_token_ids"], said.facts["completion_token_ids"]) == ((1, 2), (7, 8))
    assert said.extra["sampling"] == {"temperature": 1}
    assert said.extra["other_choices"][0]["message"]["content"] == "c"
    assert said.extra["request"] == {"n": 2, "temperature": 1}
    assert said.extra["usage"] == {"prompt_tokens_details": {"cached_tokens": 4}}
