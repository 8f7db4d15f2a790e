"""Rows of Hugging Face datasets; `test_foreign.py` lets `datasets` load trajkit's own."""

from __future__ import annotations

import json

import pytest

from tests.formats.exchange import result, say
from trajkit.formats.hf_messages import is_hf_messages, read_hf_messages
from trajkit.formats.reading.document import BadDocument

CALL = {"type": "function", "id": "c1", "function": {"name": "look", "arguments": {"far": True}}}
MESSAGES = [
    {"role": "user", "content": "where?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "a key"},
    {"role": "assistant", "content": "Here."},
]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize("tools", [TOOLS, json.dumps(TOOLS)])
def test_a_row_of_another_dataset_is_an_episode(tools):
    (episode,) = read_hf_messages(
        {"messages": MESSAGES, "tools": tools, "score": 0.5, "empty": None}
    ).episodes
    assert [step.n_prompt_kept for step in episode.steps] == [0, 2]
    assert episode.steps[0].action == [{"name": "look", "arguments": {"far": True}}]
    assert episode.steps[1].messages == (say("tool", result("c1", "a key")),)
    assert episode.steps[0].tools == ({"name": "look", "parameters": {"type": "object"}},)
    assert episode.origin == {"columns": {"score": 0.5}}


def test_a_prompt_with_its_completion_is_a_conversation():
    row = {"prompt": MESSAGES[:1], "completion": MESSAGES[1:]}
    assert is_hf_messages(row)
    (episode,) = read_hf_messages(row).episodes
    assert len(episode.steps) == 2


def test_metadata_of_others_stays():
    (episode,) = read_hf_messages({"messages": MESSAGES, "metadata": '{"licence": "mit"}'}).episodes
    assert episode.origin == {"columns": {"metadata": {"licence": "mit"}}}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"messages": "hello"}, "messages: not a list 'hello'"),
        ({"messages": [{"role": "robot"}]}, "messages.0: not a chat message no role 'robot'"),
        ({"messages": MESSAGES, "tools": "nonsense"}, "tools: tools that are not JSON 'nonsense'"),
        (
            {"messages": MESSAGES, "metadata": {"trajkit": {"version": 1, "cuts": [[9, True]]}}},
            "the cuts are not",
        ),
        ({"messages": MESSAGES, "metadata": {"trajkit": {"version": 1, "steps": [{}]}}}, "not one per step"),
        (
            {"messages": MESSAGES, "metadata": {"trajkit": {"version": 1, "colour": 1}}},
            "not a field of trajkit",
        ),
    ],
)
def test_what_is_no_row_is_named_with_its_place(row, words):
    with pytest.raises(BadDocument, match=words):
        read_hf_messages(row)
