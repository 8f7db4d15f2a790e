"""Lines of chat messages, as OpenAI's API spells them, read as episodes."""

from __future__ import annotations

import pytest

from tests.formats.exchange import conversation, whole
from trajkit.formats.openai_chat import OPENAI_CHAT, is_openai_chat, read_openai_chat
from trajkit.formats.reading.document import BadDocument

TALK = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


def test_each_answer_is_a_step_and_weight_0_is_context():
    talk = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "weight": 0}, *TALK]
    (episode,) = read_openai_chat({"messages": talk}).episodes
    assert [step.loss_weight for step in episode.steps] == [0, 1]
    assert episode.steps[0].mask_reason == "weight 0 in the file"
    assert [step.n_prompt_kept for step in episode.steps] == [0, 2]


def test_tools_are_those_of_every_step():
    tools = [{"type": "function", "function": {"name": "look"}}]
    (episode,) = read_openai_chat({"messages": [*TALK, *TALK], "tools": tools}).episodes
    assert [step.tools for step in episode.steps] == [({"name": "look"},)] * 2


def test_what_comes_after_the_last_answer_is_kept():
    (episode,) = read_openai_chat({"messages": [*TALK, {"role": "user", "content": "thanks"}]}).episodes
    assert episode.steps[0].extra == {
        "messages_after": [{"role": "user", "content": [{"type": "text", "text": "thanks"}]}]
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"messages": None}, "messages: not a list None"),
        ({"messages": [*TALK, "x"]}, "messages.2: not a chat message not an object: 'x'"),
        (
            {"messages": [{"role": "user", "content": 5}]},
            "messages.0: not a chat message content is neither text",
        ),
        (
            {"messages": [{"role": "assistant", "content": "x", "weight": -1}]},
            "messages.0.weight: not a weight -1",
        ),
        ({"messages": TALK, "tools": {"name": "x"}}, "tools: not a list"),
    ],
)
def test_what_is_no_conversation_is_named_with_its_place(line, words):
    with pytest.raises(BadDocument, match=words):
        read_openai_chat(line)


def test_a_line_has_nothing_but_what_was_said():
    (value,) = OPENAI_CHAT.write(whole()).values
    assert set(value) == {"messages", "tools"}
    assert is_openai_chat(value)
    assert not is_openai_chat({**value, "score": 1})
    losses = {loss.where for loss in OPENAI_CHAT.write(conversation()).losses}
    assert losses == {"episode_id", "source"}
