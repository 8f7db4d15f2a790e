"""Feedback that is not what it should be: no finite number, no JSON, about nothing that is there."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trajkit.sources.request import MetricCondition


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_score_that_is_no_finite_number_was_not_measured_and_is_kept_as_feedback(
    rows: Any, run: Any, value: float
) -> None:
    scored, odd = rows.episode(0.5), rows.episode(None)
    rows.float(odd, value)
    _, episodes = run()
    assert episodes[scored].metrics == {"episode_return": 0.5}
    assert episodes[odd].metrics == {}
    assert [item.value for item in episodes[odd].feedback] == [str(value)]
    _, episodes = run(MetricCondition(name="episode_return", min=-1e30))
    assert set(episodes) == {scored}


def test_a_score_that_is_no_finite_number_hides_an_earlier_one(rows: Any, run: Any) -> None:
    episode_id = rows.episode(0.5)
    rows.float(episode_id, math.inf)
    _, episodes = run()
    assert episodes[episode_id].metrics == {}


@pytest.mark.parametrize("value", ["", "not json", "[", "nul"])
def test_a_demonstration_that_is_no_json_is_kept_as_text(rows: Any, run: Any, value: str) -> None:
    episode_id = rows.id()
    inference_id = rows.json_step(episode_id)
    rows.insert("DemonstrationFeedback", id=rows.id(), inference_id=inference_id, value=value)
    _, episodes = run()
    assert [item.value for item in episodes[episode_id].feedback] == [value]
    assert episodes[episode_id].steps[0].demonstration == value
    _, episodes = run(targets="demonstration")
    (step,) = episodes[episode_id].steps
    assert step.completion is not None
    assert (step.completion.text, step.mask_reason) == (value, "invalid output")


def test_feedback_on_what_is_not_there_is_about_no_episode(rows: Any, run: Any) -> None:
    episode_id = rows.episode(0.5)
    rows.float(rows.id(), 0.9)
    rows.insert("DemonstrationFeedback", id=rows.id(), inference_id=rows.id(), value="[]")
    _, episodes = run()
    assert [item.value for item in episodes[episode_id].feedback] == [0.5]
