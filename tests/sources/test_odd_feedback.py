"""Feedback that is not what it should be: no finite number, no JSON, about nothing that is there."""

from __future__ import annotations

import math
from typing import Any

from trajkit.sources.request import MetricCondition


def test_a_score_that_is_no_finite_number_was_not_measured_and_is_kept_as_feedback(
    rows: Any, run: Any
) -> None:
    scored = rows.episode(0.5)
    odd = {rows.episode(None): value for value in (math.inf, -math.inf, math.nan)}
    for episode_id, value in odd.items():
        rows.float(episode_id, value)
    hidden = rows.episode(0.5)  # an odd one hides what was there before
    rows.float(hidden, math.inf)
    # what is about nothing that is there
    rows.float(rows.id(), 0.9)
    rows.insert("DemonstrationFeedback", id=rows.id(), inference_id=rows.id(), value="[]")
    _, episodes = run()
    assert episodes.keys() == {scored, hidden, *odd}
    assert episodes[scored].metrics == {"episode_return": 0.5}
    assert [item.value for item in episodes[scored].feedback] == [0.5]
    assert episodes[hidden].metrics == {}
    for episode_id, value in odd.items():
        assert episodes[episode_id].metrics == {}
        assert [item.value for item in episodes[episode_id].feedback] == [str(value)]
    _, episodes = run(MetricCondition(name="episode_return", min=-1e30))
    assert set(episodes) == {scored}


def test_a_demonstration_that_is_no_json_is_kept_as_text(rows: Any, run: Any) -> None:
    values = {rows.id(): value for value in ("", "not json", "[", "nul")}
    for episode_id, value in values.items():
        inference_id = rows.json_step(episode_id)
        rows.insert("DemonstrationFeedback", id=rows.id(), inference_id=inference_id, value=value)
    (_, episodes), (_, learned) = run(), run(targets="demonstration")
    for episode_id, value in values.items():
        assert [item.value for item in episodes[episode_id].feedback] == [value]
        assert episodes[episode_id].steps[0].demonstration == value
        (step,) = learned[episode_id].steps
        assert step.completion is not None
        assert (step.completion.text, step.mask_reason) == (value, "invalid output")
