"""The Agent Data Protocol: read as its converters write it, and written so that its own rules hold."""

from __future__ import annotations

import json
from typing import Any, Literal, Self

import pytest
from hypothesis import given, settings
from pydantic import BaseModel, ConfigDict, model_validator

from tests.formats.exchange import call, conversation, conversations, result, say, whole
from tests.matrix import examples
from tests.schema.conftest import episodes
from trajkit.formats.adp import ADP, read_adp
from trajkit.formats.reading.document import BadDocument
from trajkit.schema import Episode, FileBlock, TextBlock, ThoughtBlock, Transition, UnknownBlock

# --- the judge: the published field lists and rules of the protocol, as models ---


class _Item(BaseModel):
    model_config = ConfigDict(extra="forbid")
    tool_call_id: str | None = None
    reward: float | None = None


class _Observation(_Item):
    source: Literal["user", "agent", "environment"]


class _Text(_Observation):
    class_: Literal["text_observation"]
    content: str
    name: str | None = None


class _Image(_Observation):
    class_: Literal["image_observation"]
    content: str
    annotations: list[Any] | None = None


class _Action(_Item):
    reasoning_content: str | None = None
    description: str | None = None


class _Api(_Action):
    class_: Literal["api_action"]
    function: str
    kwargs: dict[str, Any]


class _Message(_Action):
    class_: Literal["message_action"]
    content: str


class Judge(BaseModel):
    """A trajectory that the converters take."""

    model_config = ConfigDict(extra="forbid")
    schema_version: str
    id: str
    content: list[_Text | _Image | _Api | _Message]
    available_custom_tools: list[str] | None = None
    available_code_languages: list[str] | None = None
    details: dict[str, Any]

    @model_validator(mode="after")
    def _every_call_has_one_result(self) -> Self:
        called: set[str] = set()
        answered: set[str] = set()
        for position, item in enumerate(self.content):
            following = self.content[position + 1] if position + 1 < len(self.content) else None
            if isinstance(item, _Api):
                assert item.tool_call_id is not None or not isinstance(following, _Observation)
                if item.tool_call_id is not None:
                    assert item.tool_call_id not in called
                    called.add(item.tool_call_id)
            elif item.tool_call_id is not None:
                assert isinstance(item, _Observation)
                assert item.tool_call_id in called - answered
                assert item.source != "user"
                answered.add(item.tool_call_id)
        assert called == answered
        return self


@examples(30, 120)
def test_whatever_is_written_keeps_the_rules_of_the_protocol(n_examples):
    @settings(max_examples=n_examples, deadline=None)
    @given(episodes() | conversations())
    def check(episode):
        (value,) = ADP.write(episode).values
        Judge.model_validate(json.loads(json.dumps(value, allow_nan=False)))

    check()


def test_a_conversation_is_actions_and_observations():
    (value,) = ADP.write(whole()).values
    Judge.model_validate(value)
    assert [(item["class_"], item.get("source")) for item in value["content"]] == [
        ("text_observation", "environment"),
        ("text_observation", "user"),
        ("api_action", None),
        ("text_observation", "environment"),
        ("message_action", None),
    ]
    asked = value["content"][2]
    assert (asked["function"], asked["kwargs"], asked["description"]) == ("look", {"far": True}, "I look.")
    assert (asked["reward"], value["content"][4]["reward"]) == (0.5, 0.5)
    assert value["available_custom_tools"] == ["look", "go"]
    assert "reward" not in value["details"]["trajkit"]["steps"][0]


def test_a_call_that_nobody_answered_gets_an_empty_result_and_comes_back_without_one():
    step = Transition(step_index=0, messages=(say("user", "x"),), completion=say("assistant", call("c1")))
    episode = Episode(episode_id="e", source="test", steps=(step,))
    (value,) = ADP.write(episode).values
    Judge.model_validate(value)
    assert value["content"][-1]["tool_call_id"] == "c1"
    assert ADP.read([value]) == episode


def test_calls_that_follow_each_other_are_one_answer():
    value = {
        "id": "t1",
        "content": [
            {"class_": "text_observation", "content": "go", "source": "user"},
            {
                "class_": "api_action",
                "function": "look",
                "kwargs": {},
                "tool_call_id": "a",
                "description": "Both.",
                "reasoning_content": "hm",
            },
            {"class_": "code_action", "language": "python", "content": "1+1", "tool_call_id": "b"},
            {"class_": "text_observation", "content": "A", "source": "environment", "tool_call_id": "a"},
            {
                "class_": "text_observation",
                "content": "2",
                "source": "environment",
                "tool_call_id": "b",
                "reward": 1,
            },
            {"class_": "message_action", "content": "Two."},
        ],
        "details": {"dataset": "d"},
    }
    (episode,) = read_adp(value).episodes
    both, last = episode.steps
    assert both.completion.content[:2] == (ThoughtBlock(text="hm"), TextBlock(text="Both."))
    assert both.action[1] == {"name": "python", "arguments": {"code": "1+1"}}
    assert last.messages == (
        say("tool", result("a", "A")),
        say("tool", result("b", "2", name="python")),
    )
    assert (both.reward, last.reward) == (1.0, None)
    assert (episode.episode_id, episode.origin) == ("t1", {"details": {"dataset": "d"}})


def test_pages_and_images_are_kept():
    page = {"class_": "web_observation", "html": "<p>x</p>", "axtree": "x", "url": "https://host"}
    image = {"class_": "image_observation", "content": "a.png", "source": "environment"}
    value = {
        "id": "t",
        "content": [page, image, {"class_": "message_action", "content": "ok"}],
        "details": {},
    }
    (episode,) = read_adp(value).episodes
    seen, shown = episode.steps[0].messages
    assert seen.content[0] == TextBlock(text="x")
    assert isinstance(seen.content[1], UnknownBlock)
    assert seen.content[1].data["html"] == "<p>x</p>"
    assert shown.content == (FileBlock(source_url="a.png", mime_type="image/*"),)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"class_": "dance"}, "content.0.class_: not a class of the protocol 'dance'"),
        ({"class_": "message_action"}, "content.0.content: not a text"),
        (
            {"class_": "text_observation", "content": "", "source": "environment", "tool_call_id": "z"},
            "content.0.tool_call_id: a tool result without its call 'z'",
        ),
        (
            {"class_": "message_action", "content": "x", "reward": "much"},
            "content.0.reward: not a number 'much'",
        ),
        ({"class_": "api_action", "function": "f", "kwargs": "{}"}, "content.0.kwargs: not an object"),
        (
            {"class_": "image_observation", "content": "/etc/passwd", "source": "user"},
            "a path that leads out of its folder '/etc/passwd'",
        ),
    ],
)
def test_what_is_no_item_is_named_with_its_place(item, words):
    with pytest.raises(BadDocument, match=words):
        read_adp({"id": "t", "content": [item], "details": {}})


def test_another_major_version_is_refused():
    with pytest.raises(BadDocument, match=r"not a known version \(1.x\) '2.0.0'"):
        read_adp({"schema_version": "2.0.0", "id": "t", "content": [], "details": {}})


def test_a_stranger_reads_what_trajkit_wrote_as_the_conversation_that_it_is():
    (value,) = ADP.write(conversation()).values
    stranger = json.loads(json.dumps(value))
    del stranger["details"]["trajkit"]
    (episode,) = read_adp(stranger).episodes
    assert list(episode.prompts()) == list(conversation().prompts())
    assert [step.completion for step in episode.steps] == [step.completion for step in conversation().steps]
