"""ShareGPT in the dialects that there are."""

from __future__ import annotations

import json

import pytest

from tests.formats.exchange import say
from trajkit.formats.reading.document import BadDocument
from trajkit.formats.reading.sharegpt import is_sharegpt, read_sharegpt
from trajkit.schema import ThoughtBlock, ToolCallBlock, ToolResultBlock


def turns(*said: tuple[str, str]) -> dict[str, object]:
    return {"conversations": [{"from": speaker, "value": value} for speaker, value in said]}


@pytest.mark.parametrize(("human", "model"), [("human", "gpt"), ("user", "assistant"), ("user", "chatgpt")])
def test_human_and_model_take_turns(human, model):
    row = {**turns((human, "hello"), (model, "hi"), (human, "bye"), (model, "ciao")), "system": "Be kind."}
    assert is_sharegpt(row)
    (episode,) = read_sharegpt(row).episodes
    assert episode.prompt(1) == (
        *(say("system", "Be kind."), say("user", "hello"), say("assistant", "hi"), say("user", "bye")),
    )


def test_calls_and_their_results_are_paired_in_order():
    call = json.dumps([{"name": "look", "arguments": {"far": True}}, {"name": "go", "parameters": {}}])
    row = turns(("human", "x"), ("function_call", call), ("observation", '["a", {"b": 1}]'), ("gpt", "ok"))
    (episode,) = read_sharegpt({**row, "tools": '[{"name": "look"}]', "id": "r7", "score": 1}).episodes
    first, second = episode.steps
    assert [block.name for block in first.completion.content] == ["look", "go"]
    assert [message.content[0] for message in second.messages] == [
        ToolResultBlock(id="call_1", name="look", result="a"),
        ToolResultBlock(id="call_2", name="go", result='{"b":1}'),
    ]
    assert (episode.episode_id, episode.origin) == ("r7", {"row": {"score": 1}})
    assert first.tools == ({"name": "look"},)


def test_thoughts_are_taken_out_of_the_answers():
    row = turns(("human", "x"), ("gpt", "<think>hm</think>\n\nyes"), ("human", "y"), ("function_call", "{}"))
    row["conversations"][3]["value"] = '<think>so</think>{"name": "go", "arguments": "{}"}'
    (episode,) = read_sharegpt(row).episodes
    assert episode.steps[0].completion == say("assistant", {"type": "thought", "text": "hm"}, "yes")
    assert episode.steps[1].completion.content == (
        ThoughtBlock(text="so"),
        ToolCallBlock(id="call_1", name="go", arguments="{}"),
    )


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (turns(("robot", "x")), "conversations.0.from: not a speaker of this format 'robot'"),
        (turns(("observation", "x")), "conversations.0: a tool result without its call 'x'"),
        (turns(("function_call", "look()")), r"conversations.0.value: a call that is not JSON 'look\(\)'"),
        (turns(("human", "x"), ("function_call", "[1]")), "conversations.1.value: not an object 1"),
        ({"conversations": [{"from": "human"}]}, "conversations.0.value: not a text None"),
        ({**turns(("human", "x")), "tools": "look"}, "tools: tools that are not JSON 'look'"),
    ],
)
def test_what_is_no_conversation_is_named_with_its_place(row, words):
    with pytest.raises(BadDocument, match=words):
        read_sharegpt(row)


def test_what_trajkit_writes_for_training_is_read_back():
    from trajkit.formats.base import one_answer
    from trajkit.formats.sharegpt import SHAREGPT

    row = SHAREGPT.row(one_answer((say("system", "rules"), say("user", "x")), say("assistant", "y"))).value
    assert is_sharegpt(row)
    (episode,) = read_sharegpt(row).episodes
    assert episode.prompt(0) == (say("system", "rules"), say("user", "x"))
    assert episode.steps[0].completion == say("assistant", "y")
