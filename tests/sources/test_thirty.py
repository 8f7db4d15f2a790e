"""The thirty episodes that each logging system must bring back."""

from __future__ import annotations

import pytest

from tests.sources import thirty
from trajkit.formats.chat.turns import steps_of
from trajkit.schema import Episode


@pytest.mark.full
def test_a_change_of_any_part_is_seen() -> None:
    with thirty.Answers() as answers:
        played = thirty.play(
            answers, lambda _name: thirty.plain_client(answers.url), lambda _name, _value: None, n_episodes=3
        )
    same = [_episode(one) for one in played]
    thirty.assert_same(same, played, has_tools=False)
    assert sum(one.n_steps for one in same) > 3
    worse = same[0].model_copy(update={"metrics": {"episode_return": 7.0}})
    with pytest.raises(AssertionError):
        thirty.assert_same([worse, *same[1:]], played, has_tools=False)
    shorter = same[0].model_copy(update={"steps": same[0].steps[:-1]})
    with pytest.raises(AssertionError):
        thirty.assert_same([shorter, *same[1:]], played, has_tools=False)
    with pytest.raises(AssertionError):
        thirty.assert_same(same[1:], played, has_tools=False)


def _episode(one: thirty.Played) -> Episode:
    return Episode.model_validate(
        {
            "episode_id": one.name,
            "source": "test",
            "metrics": {"episode_return": one.episode_return},
            "steps": steps_of(one.messages),
        }
    )
