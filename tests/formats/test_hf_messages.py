"""Rows of Hugging Face datasets: those of others, and trajkit's own as `datasets` loads them."""

from __future__ import annotations

import json

import pytest

from tests.formats.exchange import conversation, result, say, whole
from trajkit.formats.base import json_line
from trajkit.formats.hf_messages import HF_MESSAGES, is_hf_messages, read_hf_messages
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


def test_datasets_loads_the_lines_and_gives_back_the_episodes(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    import datasets

    given = [whole(), conversation(episode_id="e2")]
    path = tmp_path / "data.jsonl"
    lines = [json_line(value) for episode in given for value in HF_MESSAGES.write(episode).values]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    rows = datasets.load_dataset(
        "json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert rows.column_names == ["episode_id", "messages", "tools", "metadata"]
    assert [row["episode_id"] for row in rows] == ["e1", "e2"]
    assert [message["role"] for message in rows[0]["messages"]] == [
        *("system", "user", "assistant", "tool", "assistant")
    ]
