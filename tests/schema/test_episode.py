from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from pydantic import ValidationError

from tests.schema.conftest import episode, episodes, feedback, say, transition
from trajkit.schema import Episode, kept


def test_steps_count_from_zero_without_gaps():
    with pytest.raises(ValidationError, match=r"steps.1.step_index is 2"):
        episode(transition(0), transition(2))


def test_a_prompt_cannot_keep_more_than_the_step_before_has():
    first = transition(0, messages=(say("a"),), completion=say("b", "assistant"))
    assert episode(first, transition(1, n_prompt_kept=2, messages=())).prompt(1) == (
        say("a"),
        say("b", "assistant"),
    )
    with pytest.raises(ValidationError, match=r"steps.1.n_prompt_kept is 3; the step before has 2"):
        episode(first, transition(1, n_prompt_kept=3, messages=()))


def test_an_unknown_prompt_keeps_nothing_and_nothing_is_kept_after_it():
    with pytest.raises(ValidationError, match="messages is null"):
        episode(transition(0, messages=(say("a"),)), transition(1, n_prompt_kept=1))
    with pytest.raises(ValidationError, match="the step before has 0"):
        episode(transition(0), transition(1, n_prompt_kept=1, messages=()))
    assert list(episode(transition(0), transition(1, messages=(say("a"),))).prompts()) == [None, (say("a"),)]


@pytest.mark.parametrize("name", ["n_input_tokens", "n_output_tokens"])
def test_tokens_that_are_too_many_together_are_refused(name):
    most = 2**63 - 1
    assert episode(transition(0, **{name: most}), transition(1, **{name: 0})).n_steps == 2
    with pytest.raises(ValidationError, match=rf"the {name} of its steps are {most + 1} together"):
        episode(transition(0, **{name: most}), transition(1, **{name: 1}))


@pytest.mark.parametrize("name", ["prompt_token_ids", "completion_token_ids"])
def test_a_token_id_is_a_number_of_64_bits(name):
    assert getattr(transition(0, **{name: (2**63 - 1,)}), name) == (2**63 - 1,)
    with pytest.raises(ValidationError, match=rf"{name}.0"):
        transition(0, **{name: (2**63,)})


def test_feedback_of_another_episode_is_refused():
    with pytest.raises(ValidationError, match=r"feedback.0.episode_id is 'other', not 'e'"):
        episode(feedback=(feedback(episode_id="other"),))


def test_asking_for_a_step_that_is_not_there_says_how_many_there_are():
    with pytest.raises(IndexError, match="episode e has 1 steps; there is no step 1"):
        episode(transition(0)).prompt(1)


def test_an_append_only_conversation_is_kept_and_a_rewritten_prompt_is_not():
    before, answer = (say("rules", "system"), say("a")), say("b", "assistant")
    assert kept(before, answer, (*before, answer, say("c"))) == 3
    assert kept(before, answer, (*before, say("other"))) == 2
    assert kept(before, None, (*before, say("other"))) == 2
    assert kept(before, answer, before) == 0
    assert kept(before, answer, (say("rules", "system"), say("x"), answer)) == 0
    assert kept(before, answer, before[:1]) == 0
    assert kept((), answer, (say("a"),)) == 0


@given(episodes())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_episode_comes_back_from_json_and_its_full_prompts_end_with_what_is_new(one):
    assert Episode.model_validate_json(one.model_dump_json()) == one
    for step, prompt in zip(one.steps, one.prompts(), strict=True):
        assert (prompt is None) == (step.messages is None)
        if prompt is not None:
            assert len(prompt) == step.n_prompt_kept + len(step.messages)
            assert prompt[step.n_prompt_kept :] == step.messages
