"""Pure parts; what needs a gateway is in test_session.py."""

import pytest

from trajkit.rollouts.gateway_policy import INVALID_NOTE, history_text, request_input
from trajkit.rollouts.plan import Job
from trajkit.rollouts.policies import Past, Situation

PAST = [Past("a wall 1 step left", "turn left", True), Past("a red ball 2 steps left", "go forward", False)]


def situation(past=()) -> Situation:
    return Situation(Job("a", "goto", 1), "e", len(past), "go to the red ball", "a red ball", past, None, {})


def test_history_is_blocks_oldest_first_and_says_where_an_answer_was_no_action():
    assert history_text(PAST, 8) == (
        "Observation: a wall 1 step left\nAction: turn left\n\n"
        f"Observation: a red ball 2 steps left\nAction: go forward\n{INVALID_NOTE}"
    )


@pytest.mark.parametrize(("n", "first"), [(1, "a red ball 2 steps left"), (2, "a wall 1 step left")])
def test_history_keeps_the_latest_steps(n, first):
    assert history_text(PAST, n).startswith(f"Observation: {first}\n")


def test_a_history_of_no_steps_is_empty_and_not_everything():
    assert history_text(PAST, 0) == ""
    assert history_text([], 8) == ""


def test_the_input_has_the_shape_that_the_gateway_stores():
    assert request_input(situation(PAST), history=1) == {
        "system": {"mission": "go to the red ball"},
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "template",
                        "name": "user",
                        "arguments": {"observation": "a red ball", "history": history_text(PAST, 1)},
                    }
                ],
            }
        ],
    }


def test_without_history_the_argument_is_left_out_and_with_it_always_there():
    (message,) = request_input(situation(PAST), history=0)["messages"]
    assert message["content"][0]["arguments"] == {"observation": "a red ball"}
    (message,) = request_input(situation(), history=8)["messages"]
    assert message["content"][0]["arguments"] == {"observation": "a red ball", "history": ""}
