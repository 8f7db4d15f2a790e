"""OpenAI's messages and tools as ours, and what is refused of them."""

from __future__ import annotations

import hashlib

import pytest
from pydantic import BaseModel

from trajkit.formats.chat.message import plain_messages, read_message, read_messages, read_tools
from trajkit.rollouts.gateway.calls import as_stored
from trajkit.schema import (
    FileBlock,
    Message,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
    message,
)


def _inline(data: bytes) -> dict[str, object]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "n_bytes": len(data)}


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize(
    ("role", "ours"),
    [("system", "system"), ("developer", "system"), ("user", "user"), ("assistant", "assistant")],
)
def test_roles_are_read(role, ours):
    assert read_message({"role": role, "content": "hello"}) == message(ours, "hello")


@pytest.mark.parametrize(
    ("given", "blocks"),
    [
        ({"content": ""}, (TextBlock(text=""),)),
        ({"content": None}, ()),
        ({}, ()),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, ("a", "b")),
        ({"content": "x", "reasoning_content": "hm"}, (ThoughtBlock(text="hm"), TextBlock(text="x"))),
        ({"content": "x", "reasoning": "hm"}, (ThoughtBlock(text="hm"), TextBlock(text="x"))),
        ({"content": "x", "reasoning_content": None, "reasoning": ""}, ("x",)),
        (
            {"content": None, "tool_calls": [CALL]},
            (ToolCallBlock(id="c1", name="look", arguments='{"a": 1}'),),
        ),
        (
            {"tool_calls": [{"id": "c2", "type": "custom", "custom": {"name": "sh", "input": "ls"}}]},
            (
                ToolCallBlock(id="c2", name="sh", arguments="ls"),
                UnknownBlock(data={"tool_call_id": "c2", "type": "custom"}),
            ),
        ),
        (
            {"content": None, "refusal": "no"},
            (UnknownBlock(data={"type": "refusal", "refusal": "no"}),),
        ),
        (
            {"content": [{"type": "image_url", "image_url": {"url": "https://host/a.png", "detail": "low"}}]},
            (FileBlock(source_url="https://host/a.png", mime_type="image/*", detail="low"),),
        ),
        (
            {"content": [{"type": "input_audio", "input_audio": {"format": "wav", "data": "UklGRg=="}}]},
            (FileBlock(mime_type="audio/wav", storage_path=_inline(b"RIFF")),),
        ),
        (
            {"content": [{"type": "file", "file": {"file_id": "f1"}}]},
            (FileBlock(storage_path={"file_id": "f1"}),),
        ),
    ],
)
def test_content_is_read_and_what_has_no_type_is_kept(given, blocks):
    expected = tuple(TextBlock(text=one) if isinstance(one, str) else one for one in blocks)
    assert read_message({"role": "assistant", **given}) == Message(role=Role.ASSISTANT, content=expected)


@pytest.mark.parametrize(
    ("part", "kind", "name", "data"),
    [
        (
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            "image/png",
            None,
            b"\x89PNG\r\n\x1a\n",
        ),
        (
            {"type": "file", "file": {"file_data": "JVBERi0xLjQK", "filename": "a.pdf"}},
            None,
            "a.pdf",
            b"%PDF-1.4\n",
        ),
        ({"type": "file", "file": {"file_data": "data:text/plain,hello"}}, "text/plain", None, b"hello"),
    ],
)
def test_of_a_file_its_bytes_are_not_kept_but_what_they_are(part, kind, name, data):
    (block,) = read_message({"role": "user", "content": [part]}).content
    assert block == FileBlock(mime_type=kind, filename=name, storage_path=_inline(data))


def test_a_tools_result_gets_the_name_of_its_call():
    talk = [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "a door"},
        {
            "role": "tool",
            "tool_call_id": "c9",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        },
    ]
    _, known, unknown = read_messages(talk)
    assert known.content == (ToolResultBlock(id="c1", name="look", result="a door"),)
    assert unknown.content == (ToolResultBlock(id="c9", name="", result="ab"),)
    assert known.role == Role.TOOL


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "robot", "content": "x"},
        {"role": "user", "content": 5},
        {"role": "user", "content": "\ud800"},
        {"role": "assistant", "tool_calls": [{"id": "c"}]},
    ],
)
def test_what_is_no_message_is_named_by_its_place(wrong):
    with pytest.raises(ValueError, match=r"^messages\.1 is not a chat message: "):
        read_messages([{"role": "user", "content": "x"}, wrong])


def test_answers_of_a_client_may_stand_among_the_messages():
    class Answer(BaseModel):
        role: str = "assistant"
        content: str = "hello"
        refusal: str | None = None

    assert plain_messages([Answer(), {"role": "user", "content": "x"}]) == [
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "x"},
    ]
    for wrong in ("hello", None, {"content": "x"}, {"role": 5}):
        with pytest.raises(ValueError, match=r"^messages\.0 is not a message with a role"):
            plain_messages([wrong])


def test_tools_are_read_as_the_store_has_them():
    function = {"name": "look", "description": "Look.", "parameters": {"type": "object"}, "strict": True}
    custom = {"type": "custom", "custom": {"name": "sh"}}
    assert read_tools([{"type": "function", "function": function}, custom]) == (function, custom)
    assert read_tools([]) is None
    assert read_tools(None) is None
    with pytest.raises(ValueError, match="JSON"):
        read_tools([{"type": "function", "function": {"name": object()}}])


def test_the_input_of_an_inference_is_kept_as_the_gateway_stores_it():
    given = {
        "system": {"a": 1},
        "messages": [{"role": "user", "content": "x"}, {"role": "user", "content": []}],
    }
    assert as_stored(given) == {
        "system": {"a": 1},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
            {"role": "user", "content": []},
        ],
    }
    assert as_stored({"messages": "?"}) == {"messages": "?"}
    with pytest.raises(ValueError, match="JSON"):
        as_stored({"messages": [{"role": "user", "content": b"x"}]})
