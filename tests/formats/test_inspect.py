"""Samples of Inspect's logs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.formats.exchange import result, say
from trajkit.formats.reading.document import BadDocument
from trajkit.formats.reading.inspect import error_of, is_inspect, read_sample
from trajkit.schema import Outcome, ThoughtBlock

LOG = {
    "version": 2,
    "status": "success",
    "eval": {"task": "maze", "eval_id": "ev1", "model": "openai/m", "dataset": {"name": "d"}},
}
USER = {"id": "1", "role": "user", "content": "where is the key?", "source": "input"}
ASKED = {
    "id": "2",
    "role": "assistant",
    "content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "I look."}],
    "tool_calls": [{"id": "c1", "function": "look", "arguments": {"far": True}, "type": "function"}],
}
SEEN = {"id": "3", "role": "tool", "content": "a key", "tool_call_id": "c1", "function": "look"}
DONE = {"id": "4", "role": "assistant", "content": "Here."}
SAMPLE = {
    "id": 7,
    "epoch": 2,
    "input": "where is the key?",
    "target": "here",
    "messages": [USER, ASKED, SEEN, DONE],
    "scores": {"match": {"value": "C", "answer": "Here."}},
    "metadata": {"level": 1},
}


def call(prompt: list[Any], answer: Any, **more: Any) -> dict[str, Any]:
    output = {
        "model": "m",
        "choices": [{"message": answer, "stop_reason": "stop"}],
        "usage": {"input_tokens": 5, "output_tokens": 2},
        "time": 0.5,
    }
    return {
        "event": "model",
        "timestamp": "2026-11-21T12:00:00+00:00",
        "input": prompt,
        "output": output,
        **more,
    }


def test_a_sample_without_calls_of_the_model_is_one_conversation():
    assert is_inspect(LOG)
    (episode,) = read_sample(SAMPLE, LOG).episodes
    assert (episode.episode_id, episode.env_id, episode.task) == ("ev1-7-2", "maze", "7")
    assert episode.tags == {"epoch": "2"}
    assert (episode.metrics, episode.outcome) == ({"match": 1.0}, Outcome.SUCCESS)
    first, second = episode.steps
    assert first.completion.content[0] == ThoughtBlock(text="hm")
    assert first.action == [{"name": "look", "arguments": {"far": True}}]
    assert second.messages == (say("tool", result("c1", "a key")),)
    assert episode.origin["inspect"]["metadata"] == {"level": 1}
    assert first.model_name == "openai/m"


def test_calls_of_the_model_are_steps_with_their_very_prompts():
    rewritten = {**USER, "content": "where is the key? You saw: a key"}
    events = [
        {"event": "state"},
        call([USER], ASKED, tools=[{"name": "look", "parameters": {"type": "object"}}]),
        call([USER, ASKED, SEEN], DONE),
        call([rewritten], DONE),
        call([USER], DONE, error="rate limit"),
    ]
    (episode,) = read_sample({**SAMPLE, "events": events}, LOG).episodes
    assert [step.n_prompt_kept for step in episode.steps] == [0, 2, 0]
    assert episode.prompt(2) == (say("user", "where is the key? You saw: a key"),)
    assert (episode.steps[0].n_input_tokens, episode.steps[0].latency_s) == (5, 0.5)
    assert episode.steps[0].tools == ({"name": "look", "parameters": {"type": "object"}},)


def test_prompts_that_a_log_keeps_once_are_put_together():
    pool = [USER, ASKED, SEEN]
    events = [call([], ASKED, input_refs=[[0, 1]]), call([], DONE, input_refs=[[0, 2], [2, 3]])]
    for where in ({"message_pool": pool}, {"events_data": {"messages": pool}}):
        (episode,) = read_sample({**SAMPLE, "events": events, **where}, LOG).episodes
        assert [step.n_prompt_kept for step in episode.steps] == [0, 2]


def test_long_texts_that_a_log_keeps_apart_are_put_in_their_places():
    sample = copy.deepcopy(SAMPLE)
    sample["messages"][0]["content"] = "attachment://abc"
    sample["attachments"] = {"abc": "a long story"}
    (episode,) = read_sample(sample, LOG).episodes
    assert episode.prompt(0) == (say("user", "a long story"),)


@pytest.mark.parametrize(
    ("scores", "metrics", "outcome"),
    [
        ({"a": {"value": "I"}}, {"a": 0.0}, "failure"),
        ({"a": {"value": True}, "b": {"value": 0.5}}, {"a": 1.0, "b": 0.5}, "unknown"),
        ({"a": {"value": {"x": 1, "y": "P"}}}, {"a.x": 1.0, "a.y": 0.5}, "unknown"),
        ({"a": {"value": "a word"}}, {}, "unknown"),
        (None, {}, "unknown"),
    ],
)
def test_scores_are_metrics(scores, metrics, outcome):
    (episode,) = read_sample({**SAMPLE, "scores": scores}, LOG).episodes
    assert (episode.metrics, str(episode.outcome)) == (metrics, outcome)


def test_a_limit_cuts_the_last_step_off():
    (episode,) = read_sample({**SAMPLE, "scores": {}, "limit": {"type": "message", "limit": 4}}, LOG).episodes
    assert episode.steps[-1].truncated is True
    assert episode.outcome == "truncated"


def test_an_error_is_named_in_few_words():
    assert (
        error_of({**SAMPLE, "error": {"message": "RuntimeError('no door')", "traceback": "…"}})
        == "RuntimeError"
    )
    assert error_of(SAMPLE) is None
    (episode,) = read_sample({**SAMPLE, "error": {"message": "RuntimeError('x')"}}, LOG).episodes
    assert episode.outcome == "error"


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ({"id": 1}, "not a sample: it has no id or no messages"),
        (
            {**SAMPLE, "messages": [{"role": "robot", "content": ""}]},
            "messages.0: not a chat message no role 'robot'",
        ),
        ({**SAMPLE, "messages": "x"}, "messages: not a list 'x'"),
    ],
)
def test_what_is_no_sample_is_named(sample, words):
    with pytest.raises(BadDocument, match=words):
        read_sample(sample, LOG)
