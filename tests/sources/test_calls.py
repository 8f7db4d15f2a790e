"""Calls that a system logged become episodes: ordered, each prompt stored once, scores attached."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from trajkit.formats.chat.conversation import conversation_of
from trajkit.sources.calls import NO_PROMPT, Call, Gathered, Score, Session, found_of, reading_of

START = datetime(2026, 11, 1, tzinfo=UTC)
TALK = conversation_of(
    [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "2"},
    ]
)


def call(number: int, **fields: object) -> Call:
    values = {
        "call_id": f"call-{number}",
        "prompt": TALK[: 2 * number + 1],
        "answer": TALK[2 * number + 1],
        "started_at": START + timedelta(seconds=number),
        **fields,
    }
    return Call(**values)  # type: ignore[arg-type]


def score(name: str, value: float | bool | str, number: int, call_id: str | None = None) -> Score:
    at = START + timedelta(minutes=number)
    return Score(name=name, value=value, score_id=f"s{number}", call_id=call_id, created_at=at)


def test_calls_are_ordered_by_time_and_a_prompt_is_stored_once() -> None:
    session = Session(session_id="a", source="test", calls=[call(1), call(0)])
    (episode,) = reading_of(session).episodes
    assert [step.inference_id for step in episode.steps] == ["call-0", "call-1"]
    assert [step.n_prompt_kept for step in episode.steps] == [0, 2]
    assert episode.prompt(1) == tuple(TALK[:3])
    assert (episode.started_at, episode.ended_at) == (START, START + timedelta(seconds=1))


def test_the_latest_score_is_the_metric_and_a_label_is_a_comment() -> None:
    scores = [
        score("quality", 0.2, 2),
        score("quality", 0.9, 3),
        score("thumb", True, 1, "call-1"),
        score("why", "clear", 4),
    ]
    (episode,) = reading_of(
        Session(session_id="a", source="test", calls=[call(0), call(1)], scores=scores)
    ).episodes
    assert episode.metrics == {"quality": 0.9}
    assert episode.steps[1].metrics == {"thumb": True}
    assert [(one.metric_name, one.value, one.inference_id) for one in episode.feedback] == [
        ("thumb", True, "call-1"),
        ("quality", 0.2, None),
        ("quality", 0.9, None),
        ("comment", "clear", None),
    ]
    assert episode.feedback[3].tags == {"name": "why"}


def test_a_run_of_a_sub_agent_is_an_episode_that_names_its_parent() -> None:
    calls = [
        call(0),
        call(1, agent_run="helper", agent_name="searcher"),
        call(1, agent_run="deep", call_id="x"),
    ]
    session = Session(session_id="a", source="test", calls=calls, agent_parents={"deep": "helper"})
    found = {one.episode_id: one.origin or {} for one in reading_of(session).episodes}
    assert {name: origin.get("parent_episode_id") for name, origin in found.items()} == {
        "a": None,
        "a/helper": "a",
        "a/deep": "a/helper",
    }


def test_a_failed_call_and_a_lost_prompt_stay_as_steps_and_are_counted() -> None:
    calls = [call(0, answer=None, error="timeout"), call(1, prompt=None)]
    found = found_of(Session(session_id="a", source="test", calls=calls), "here")
    assert found.missing == (NO_PROMPT,)
    (episode,) = reading_of(Session(session_id="a", source="test", calls=calls)).episodes
    assert episode.steps[0].extra == {"error": "timeout"}
    assert episode.steps[0].completion is None
    assert episode.steps[1].messages is None


def test_a_value_that_cannot_be_is_the_problem_of_its_session() -> None:
    found = found_of(Session(session_id="a", source="test", calls=[call(0, latency_s=-1.0)]), "here")
    assert found.problem is not None
    assert (found.problem.where, found.problem.value) == ("steps.0.latency_s", "-1.0")


@pytest.mark.parametrize("is_moved_first", [True, False])
def test_rows_in_any_order_come_back_by_group(is_moved_first: bool) -> None:
    with Gathered() as gathered:
        if is_moved_first:
            gathered.move("trace-2", "session")
        gathered.add("trace-1", {"n": 1})
        gathered.add("trace-2", {"n": 2}, part="span")
        gathered.add("session", {"n": 3}, part="score")
        gathered.add("trace-2", {"n": 4}, part="span")
        if not is_moved_first:
            gathered.move("trace-2", "session")
        assert list(gathered.groups()) == [
            ("trace-1", {"": [{"n": 1}]}),
            ("session", {"span": [{"n": 2}, {"n": 4}], "score": [{"n": 3}]}),
        ]
