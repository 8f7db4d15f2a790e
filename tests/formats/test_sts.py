"""Session traces of the Hugging Face Hub: a file of lines that its viewer shows."""

from __future__ import annotations

import json

import pytest

from tests.formats.exchange import NOON, conversation, result, say, whole
from trajkit.formats.reading.document import BadDocument
from trajkit.formats.sts import STS, read_sts

HEADER = {"type": "session", "harness": "my-agent", "id": "s1", "name": "Fix the door"}


def line(role: str, content: str = "", **more: object) -> dict[str, object]:
    return {"type": "message", "message": {"role": role, "content": content, **more}}


def test_the_lines_are_what_the_viewer_needs():
    header, *messages = STS.write(whole()).values
    assert {name: header[name] for name in ("type", "harness", "id", "name")} == {
        "type": "session",
        "harness": "trajkit",
        "id": "e1",
        "name": "maze/key",
    }
    assert [one["type"] for one in messages] == ["message"] * 5
    said = [one["message"] for one in messages]
    assert [one["role"] for one in said] == ["system", "user", "assistant", "tool", "assistant"]
    assert all(isinstance(one["content"], str) for one in said)
    assert said[2]["toolCalls"] == [{"id": "c1", "function": {"name": "look", "arguments": '{"far":true}'}}]
    assert said[3]["toolCallId"] == "c1"
    assert (said[4]["model"], said[4]["timestamp"]) == ("small", int(NOON.timestamp() * 1000) + 1000)


def test_a_session_of_another_harness_is_read():
    lines = [
        HEADER,
        line("user", "open it"),
        line(
            "assistant",
            "",
            reasoningContent="hm",
            toolCalls=[{"id": "t1", "function": {"name": "open", "arguments": "{}"}}],
            model="m",
            timestamp=1_780_000_000_000,
        ),
        line("tool", "it creaks", toolCallId="t1"),
        line("assistant", "Open."),
    ]
    (episode,) = read_sts(lines).episodes
    assert (episode.episode_id, episode.task) == ("s1", "Fix the door")
    assert episode.steps[1].messages == (say("tool", result("t1", "it creaks", name="open")),)
    assert episode.steps[0].model_name == "m"
    assert episode.started_at == episode.steps[0].started_at
    assert episode.origin == {"session": {"harness": "my-agent"}}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([line("user", "x")], "lines.1: the first line is not a session"),
        ([HEADER, {"type": "event"}], "lines.2.type: not a message 'event'"),
        ([HEADER, line("robot", "x")], "lines.2.message.role: not a role 'robot'"),
        (
            [HEADER, line("assistant", "x", timestamp="noon")],
            "lines.2.message.timestamp: not a time in milliseconds",
        ),
    ],
)
def test_what_is_no_session_is_named_with_its_line(lines, words):
    with pytest.raises(BadDocument, match=words):
        read_sts(lines)


def test_tools_and_all_the_rest_are_in_the_first_line_which_the_viewer_passes_over():
    header = STS.write(whole()).values[0]
    assert [tool["function"]["name"] for tool in header["tools"]] == ["look", "go"]
    assert header["trajkit"]["seed"] == 7
    assert json.loads(json.dumps(header)) == header
    assert STS.read(STS.write(conversation()).values) == conversation()
