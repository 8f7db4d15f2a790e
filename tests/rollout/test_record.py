from datetime import UTC, datetime

import pytest

from trajkit.environments.base import Result
from trajkit.errors import QueryError
from trajkit.rollout.faults import Fault, FaultKind
from trajkit.rollout.ids import uuid7
from trajkit.rollout.plan import Job
from trajkit.rollout.policies import Answer, Choice
from trajkit.rollout.record import Played, PlayedStep, outcome_of, to_episode
from trajkit.schema import Message, Outcome, Purpose, Role, message

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


def test_prompts_of_an_agent_that_writes_its_history_into_one_message_stand_alone():
    first, second = answer(), answer()
    prompts = {
        first.inference_id: (SYSTEM, message("user", "1")),
        second.inference_id: (SYSTEM, message("user", "1 2")),
    }
    episode = to_episode(played(step(answer=first), step(answer=second)), prompts)
    assert [one.n_prompt_kept for one in episode.steps] == [0, 0]
    assert list(episode.prompts()) == list(prompts.values())


def test_prompts_of_a_growing_conversation_are_kept_once():
    first, second = answer("a"), answer("b")
    opening = (SYSTEM, message("user", "1"))
    prompts = {first.inference_id: opening}
    prompts[second.inference_id] = (*opening, message("assistant", "a"), message("user", "2"))
    episode = to_episode(played(step(answer=first), step(answer=second)), prompts)
    assert [one.n_prompt_kept for one in episode.steps] == [0, 3]
    assert list(episode.prompts()) == list(prompts.values())


def test_a_prompt_that_was_not_found_stays_unknown():
    first, second = answer(), answer()
    prompts = {second.inference_id: (SYSTEM, message("user", "2"))}
    episode = to_episode(played(step(answer=first), step(answer=second)), prompts)
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
