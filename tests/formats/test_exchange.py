"""Every format of whole episodes: what it does not name as lost comes back, whatever the episode."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from pydantic_core import from_json

from tests.formats.exchange import conversation, conversations, say, whole
from tests.matrix import examples
from tests.schema.conftest import episodes
from trajkit.formats import format_named, known
from trajkit.formats.base import EpisodeFormat, json_line
from trajkit.formats.openai_chat import read_openai_chat
from trajkit.formats.reading.document import BadDocument
from trajkit.schema import Episode, Transition

FORMATS = [one for name in known() if isinstance(one := format_named(name), EpisodeFormat)]
EXACT = [one for one in FORMATS if one.name != "openai-chat"]
NOT_STORED_TWICE = ("step_index", "n_prompt_kept", "messages", "completion")


def over_the_wire(values: Any) -> list[Any]:
    """What a file gives back of the values: keys in their order, numbers as they are written."""
    return [from_json(json_line(value).encode(), allow_inf_nan=False) for value in values]


def test_every_field_of_the_example_says_something():
    episode = whole()
    for name, field in Episode.model_fields.items():
        assert field.is_required() or getattr(episode, name) != field.get_default(call_default_factory=True)
    for name, field in Transition.model_fields.items():
        values = [getattr(step, name) for step in episode.steps]
        assert field.is_required() or any(v != field.get_default(call_default_factory=True) for v in values)


@pytest.mark.parametrize("form", EXACT, ids=lambda form: form.name)
def test_an_episode_of_which_every_field_says_something_comes_back_whole(form):
    document = form.write(whole())
    assert document.losses == ()
    assert form.read(over_the_wire(document.values)) == whole()


@examples(15, 60)
@pytest.mark.parametrize("form", EXACT, ids=lambda form: form.name)
def test_any_episode_comes_back_as_it_was(form, n_examples):
    @settings(max_examples=n_examples, deadline=None)
    @given(episodes() | conversations())
    def check(episode: Episode) -> None:
        document = form.write(episode)
        assert document.losses == ()
        back = form.read(over_the_wire(document.values))
        assert back == episode
        assert back.model_dump_json() == episode.model_dump_json()  # 1 is not 1.0, and not true

    check()


def said(step: Transition) -> dict[str, Any]:
    """What a step says beside its messages, as JSON."""
    return {
        name: value for name, value in step.model_dump(mode="json").items() if name not in NOT_STORED_TWICE
    }


def differences(episode: Episode, back: list[Episode]) -> set[str]:
    """Places at which lines say something else than an episode, found apart from what names losses."""
    places = set()
    given, read = episode.model_dump(mode="json"), back[0].model_dump(mode="json")
    places |= {name for name in given if name != "steps" and given[name] != read[name]}
    steps = [(line, step) for line in back for step in line.steps]
    prompts = [prompt for line in back for prompt in line.prompts()]
    both = zip(episode.steps, episode.prompts(), steps, prompts, strict=True)
    for ours, prompt, (_, theirs), other in both:
        where = f"steps.{ours.step_index}"
        mine, other_facts = said(ours), said(theirs)
        places |= {f"{where}.{name}" for name in mine if mine[name] != other_facts[name]}
        for position, (one, two) in enumerate(zip(prompt, other, strict=True)):
            if one != two:
                places.add(f"{where}.prompt.{position}")
        if ours.completion != theirs.completion:
            places.add(f"{where}.completion")
    return places


@examples(30, 100)
def test_of_a_conversation_the_lines_lose_what_is_named_and_nothing_more(n_examples):
    @settings(max_examples=n_examples, deadline=None)
    @given(conversations())
    def check(episode: Episode) -> None:
        document = format_named("openai-chat").write(episode)
        assert len(document.values) == 1  # it is one conversation
        back = [read_openai_chat(value).episodes[0] for value in over_the_wire(document.values)]
        named = {loss.where.partition(".content")[0] for loss in document.losses}
        lost = differences(episode, back)
        # what is said in a prompt was lost where it was said first
        assert {place for place in lost if ".prompt." not in place} == {
            place for place in named if ".prompt." not in place
        }
        firsts = {place for place in named if ".prompt." in place}
        assert firsts <= lost

    check()


def test_where_each_prompt_is_written_anew_each_is_a_line_of_its_own():
    steps = tuple(
        Transition(step_index=i, messages=(say("user", f"turn {i}"),), completion=say("assistant", "go"))
        for i in range(3)
    )
    episode = Episode(episode_id="e", source="test", steps=steps)
    document = format_named("openai-chat").write(episode)
    assert [value["messages"][0]["content"] for value in document.values] == ["turn 0", "turn 1", "turn 2"]
    cut = [loss.where for loss in document.losses if loss.kind == "conversation"]
    assert cut == ["steps.1", "steps.2"]


def test_a_step_without_an_answer_is_named_as_lost():
    steps = (*conversation().steps, Transition(step_index=2, messages=(), n_prompt_kept=5))
    document = format_named("openai-chat").write(conversation(steps=steps))
    assert [loss.where for loss in document.losses if loss.kind == "step"] == ["steps.2"]


def test_an_answer_that_was_only_context_is_named():
    shown = (say("user", "a"), say("assistant", "b"), say("user", "c"))
    step = Transition(step_index=0, messages=shown, completion=say("assistant", "d"))
    document = format_named("openai-chat").write(Episode(episode_id="e", source="test", steps=(step,)))
    assert [loss.where for loss in document.losses if loss.kind == "context answer"] == ["steps.0.prompt.1"]
    assert document.values[0]["messages"][1]["weight"] == 0


@settings(max_examples=20, deadline=None)
@given(episodes())
def test_what_no_line_can_say_does_not_stop_the_writing(episode):
    document = format_named("openai-chat").write(episode)
    for value in document.values:
        json.dumps(value, allow_nan=False)
        assert all(isinstance(one["role"], str) for one in value["messages"])


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_writing_changes_nothing_of_what_is_written(form):
    episode = whole()
    before = episode.model_dump_json()
    form.write(episode)
    assert episode.model_dump_json() == before


@pytest.mark.parametrize("form", EXACT, ids=lambda form: form.name)
def test_a_profile_of_a_newer_trajkit_is_refused(form):
    text = json.dumps(form.write(whole()).values)
    newer = json.loads(text.replace('"trajkit": {"version": 1', '"trajkit": {"version": 2'))
    with pytest.raises(BadDocument, match="another version than 1"):
        form.read(newer)


def test_messages_are_one_for_one_so_that_a_stranger_sees_them_in_order():
    for form in EXACT:
        text = json.dumps(form.write(conversation()).values)
        places = [text.index(word) for word in ("rules", "where is the key", "I look", "a key", "It is here")]
        assert places == sorted(places), form.name
