from datetime import UTC, datetime, timedelta

import pytest

from trajkit._core.ids import uuid7
from trajkit.environments.base import Result
from trajkit.errors import QueryError
from trajkit.rollouts.faults import Fault, FaultKind
from trajkit.rollouts.plan import Job
from trajkit.rollouts.policies import Answer, Choice
from trajkit.rollouts.records.record import (
    Played,
    PlayedStep,
    outcome_of,
    step_times,
    to_episode,
    with_prompts,
)
from trajkit.schema import Message, Outcome, Purpose, Role, ToolCallBlock, ToolResultBlock, message
from trajkit.sources.tensorzero.export.prompts import Sent
from trajkit.store.dataset import open_dataset
from trajkit.store.writer import write_episodes

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
SYSTEM = message(Role.SYSTEM, "Play.")


def answer(raw='{"action": "turn left"}', **changes) -> Answer:
    values = {"inference_id": uuid7(), "function_name": "act", "variant_name": "v", "input": {"messages": []}}
    values |= {"n_input_tokens": 10, "n_output_tokens": 2, "finish_reason": "stop", "latency_s": 0.5}
    return Answer(**(values | {"started_at": NOW, "raw": raw} | changes))


def step(action="turn left", reward=0.0, answer=None, *, is_valid=True, observation="a wall") -> PlayedStep:
    result = Result("a door", reward, reward > 0, False, action if is_valid else "go forward", is_valid)
    return PlayedStep(observation, Choice(action, answer), result, NOW, NOW)


def played(*steps: PlayedStep, **changes) -> Played:
    values = {
        "job": Job("v", "goto", 7),
        "env_id": "babyai",
        "purpose": Purpose.EVAL,
        "run": "r",
        "episode_id": uuid7(),
        "tags": {"trajkit.env": "babyai"},
        "mission": "go to the red ball",
        "initial_state_hash": "00",
        "steps": steps,
        "outcome": Outcome.SUCCESS,
        "metrics": {"progression": 1.0, "episode_return": 0.1},
        "feedback": (),
        "fault": None,
    }
    return Played(**(values | changes))


def test_an_episode_holds_what_a_gateway_cannot_know():
    episode = to_episode(
        played(step(answer=answer()), step("fly", 0.1, answer('{"action": "fly"}'), is_valid=False))
    )
    assert (episode.env_id, episode.task, episode.seed, episode.purpose) == ("babyai", "goto", 7, "eval")
    assert (episode.outcome, episode.total_reward, episode.metrics["episode_return"]) == ("success", 0.1, 0.1)
    first, second = episode.steps
    assert (first.action, first.action_executed, first.action_valid, first.reward) == (
        "turn left",
        "turn left",
        True,
        0,
    )
    assert (second.action, second.action_executed, second.action_valid, second.reward) == (
        "fly",
        "go forward",
        False,
        0.1,
    )
    assert (first.terminated, second.terminated, second.truncated) == (False, True, False)
    assert (first.completion, first.cached) == (message(Role.ASSISTANT, '{"action": "turn left"}'), False)


def test_every_call_of_a_step_is_a_transition_and_the_last_has_the_action():
    calls = (answer('{"plan": "left"}', function_name="plan"), answer("", function_name="doubt"))
    last = answer(function_name="act")
    first = step("turn left", 0.0)
    several = step("drop", 0.5, last)._replace(choice=Choice("drop", last, calls))
    record = played(first, several)
    steps = to_episode(record).steps
    assert [one.step_index for one in steps] == [0, 1, 2, 3]
    assert [one.function_name for one in steps] == [None, "plan", "doubt", "act"]
    assert [one.inference_id for one in steps[1:]] == [one.inference_id for one in (*calls, last)]
    assert [one.observation for one in steps] == ["a wall"] * 4
    assert [one.action for one in steps] == ["turn left", None, None, "drop"]
    assert [one.action_executed for one in steps] == ["turn left", None, None, "drop"]
    assert [one.action_valid for one in steps] == [True, None, None, True]
    assert [one.reward for one in steps] == [0.0, None, None, 0.5]
    assert [one.terminated for one in steps] == [False, None, None, True]
    assert [one.truncated for one in steps] == [False, None, None, False]
    assert to_episode(record).total_reward == 0.5
    assert (record.n_input_tokens, record.n_output_tokens) == (30, 6)
    assert record.answers() == [*calls, last]


def test_an_answer_of_a_step_that_a_fault_cut_short_is_kept_without_an_action():
    cut = answer("thinking…")
    record = played(step(), outcome=Outcome.ERROR, fault=Fault(FaultKind.TIMEOUT, "late"), unfinished=(cut,))
    episode = to_episode(record)
    assert [one.completion and one.completion.text for one in episode.steps] == [None, "thinking…"]
    assert (episode.steps[1].action, episode.steps[1].action_executed, episode.steps[1].reward) == (
        None,
        None,
        None,
    )
    assert record.n_input_tokens == 10


def test_prompts_that_are_known_are_kept_once_and_the_database_is_asked_for_the_others():
    opening = (SYSTEM, message("user", "1"))
    call = ToolCallBlock(id="c", name="look", arguments="{}")
    asked = Message(role="assistant", content=(call,))
    result = Message(role="tool", content=(ToolResultBlock(id="c", name="look", result="a door"),))
    first = answer(None, messages=opening, completion=asked, tools=({"name": "look"},))
    second = answer("drop", messages=(*opening, asked, result))
    third, fourth = answer(), answer()
    steps = (
        step("drop", answer=second)._replace(choice=Choice("drop", second, (first,))),
        step(answer=third),
        step(answer=fourth),
    )
    exact = {
        third.inference_id: Sent((SYSTEM,), ({"name": "walk"},)),
        second.inference_id: Sent((message("user", "not this"),), ({"name": "not this"},)),
    }
    episode = with_prompts(to_episode(played(*steps)), exact)
    assert [one.n_prompt_kept for one in episode.steps] == [0, 3, 0, 0]
    assert [one.messages for one in episode.steps] == [opening, (result,), (SYSTEM,), None]
    assert list(episode.prompts()) == [opening, (*opening, asked, result), (SYSTEM,), None]
    assert episode.steps[0].completion == asked
    assert [one.tools for one in episode.steps] == [({"name": "look"},), None, ({"name": "walk"},), None]


def test_what_is_known_of_a_call_without_a_gateway_is_kept():
    known = {"function_name": None, "variant_name": None, "input": None, "cached": None, "model_name": "m"}
    call = answer("x", **known, cost_usd=0.25, extra={"completion_id": "c1"})
    noted = step(None, answer=call, is_valid=False)._replace(choice=Choice(None, call, note="too large"))
    (only,) = to_episode(played(noted)).steps
    assert (only.model_name, only.variant_name, only.function_name, only.cached) == ("m", "v", None, None)
    assert (only.cost_usd, only.extra) == (0.25, {"completion_id": "c1", "note": "too large"})


def test_a_step_begins_with_its_first_call_and_ends_with_the_end_of_its_last():
    def at(seconds, latency_s):
        return answer(started_at=NOW + timedelta(seconds=seconds), latency_s=latency_s)

    choice = Choice("drop", at(2, 0.5), (at(0, 1.0), at(1, 4.0)))
    assert step_times(choice, NOW + timedelta(seconds=9)) == (NOW, NOW + timedelta(seconds=5))
    assert step_times(Choice("drop"), NOW) == (NOW, NOW)


def test_episodes_of_several_calls_come_back_from_the_store_as_they_were(tmp_path):
    opening = (SYSTEM, message("user", "1"))
    first = answer("a", messages=opening, tools=({"name": "look"},), extra={"k": [1, None]}, cost_usd=0.5)
    second = answer("b", messages=(*opening, message("assistant", "a"), message("user", "2")), model_name="m")
    several = step("drop", 0.1, second)._replace(choice=Choice({"go": 1}, second, (first,), "a note"))
    whole = played(several, metrics={})
    broken = played(step(), outcome=Outcome.ERROR, metrics={}, unfinished=(first,))
    episodes = [to_episode(whole), to_episode(broken)]
    write_episodes(
        tmp_path / "s", episodes, kind="rollout", source={"kind": "rollout"}, lineage=[], metrics=[]
    )
    stored = {episode.episode_id: episode for episode in open_dataset(tmp_path / "s")}
    assert [stored[episode.episode_id] for episode in episodes] == episodes


@pytest.mark.parametrize(
    ("raw", "completion"), [("", message("assistant", "")), (None, Message(role="assistant", content=()))]
)
def test_an_empty_answer_and_none_at_all_stay_apart(raw, completion):
    (only,) = to_episode(played(step(None, answer=answer(raw), is_valid=False))).steps
    assert (only.completion, only.action, only.action_valid) == (completion, None, False)


def test_a_scripted_step_has_no_answer_and_no_tokens():
    record = played(step())
    (only,) = to_episode(record).steps
    assert (only.completion, only.inference_id, only.n_input_tokens, only.cached) == (None, None, None, None)
    assert (record.n_input_tokens, record.n_output_tokens) == (None, None)


def test_tokens_add_up_and_are_unknown_when_one_is():
    assert played(step(answer=answer()), step(answer=answer())).n_input_tokens == 20
    assert played(step(answer=answer()), step(answer=answer(n_input_tokens=None))).n_input_tokens is None
    assert played().n_output_tokens is None


def test_an_episode_that_a_fault_ended_has_no_return():
    record = played(
        step(), outcome=Outcome.ERROR, metrics={}, fault=Fault(FaultKind.TIMEOUT, "no answer in 180 s")
    )
    episode = to_episode(record)
    assert (episode.outcome, episode.total_reward, episode.metrics) == ("error", None, {})
    assert episode.origin["error"] == "timeout: no answer in 180 s"


def test_an_input_that_says_the_prompt_once_more_is_null_as_in_an_export():
    said = [{"role": "user", "content": [{"type": "text", "text": "1"}]}]
    inputs = (
        {"system": SYSTEM.content[0].text, "messages": said},
        {"messages": said},
        {"system": {"mission": "m"}, "messages": said},
        {"system": SYSTEM.content[0].text, "messages": [*said, *said]},
    )
    answers = [answer(input=one) for one in inputs]
    sent = Sent((SYSTEM, message("user", "1")))
    steps = [step(answer=one) for one in answers]
    episode = with_prompts(to_episode(played(*steps)), {one.inference_id: sent for one in answers})
    assert [one.input for one in episode.steps] == [None, *inputs[1:]]
    # where the prompt is not known, the input is all there is
    unknown = to_episode(played(*steps))
    assert [one.input for one in unknown.steps] == list(inputs)


def test_a_prompt_that_was_not_found_stays_unknown():
    first, second = answer(), answer()
    prompts = {second.inference_id: Sent((SYSTEM, message("user", "2")))}
    episode = with_prompts(to_episode(played(step(answer=first), step(answer=second))), prompts)
    assert list(episode.prompts()) == [None, (SYSTEM, message("user", "2"))]


@pytest.mark.parametrize(
    ("condition", "value", "truncated", "outcome"),
    [
        ("progression >= 1", 1.0, False, Outcome.SUCCESS),
        ("progression >= 1", 0.5, False, Outcome.FAILURE),
        ("progression >= 1", 0.5, True, Outcome.TRUNCATED),
        ("progression >= 1", 1.0, True, Outcome.SUCCESS),
        ("progression>0.25", 0.5, False, Outcome.SUCCESS),
        ("progression < 0.5", 0.5, False, Outcome.FAILURE),
    ],
)
def test_the_outcome_follows_the_environments_own_condition(condition, value, truncated, outcome):
    assert outcome_of({"progression": value}, condition, truncated=truncated) == outcome


@pytest.mark.parametrize("condition", ["", "progression", "score >= 1", "progression >= one"])
def test_a_condition_that_cannot_be_read_is_an_error(condition):
    with pytest.raises(QueryError):
        outcome_of({"progression": 1.0}, condition, truncated=False)
