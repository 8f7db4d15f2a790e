import pytest

from trajkit.environments import environment_info
from trajkit.errors import RolloutError
from trajkit.rollouts.preparation import Sight, all_metrics, look


def test_a_look_tells_what_an_episode_will_measure_and_how_long_it_may_last():
    sight = look(environment_info("babyai"), "goto", 0)
    assert sight.metrics == ("progression", "episode_return")
    assert sight.max_steps == 64
    assert sight.n_characters > 5
    assert sight.n_characters_seen > 10


def test_metrics_of_several_tasks_are_each_there_once_and_the_return_is_last():
    sights = [
        Sight(("a", "b", "episode_return"), 1, 1, 1),
        Sight(("b", "c", "episode_return"), 1, 1, 1),
    ]
    assert all_metrics(sights) == ("a", "b", "c", "episode_return")


def test_a_world_that_cannot_begin_is_closed_all_the_same():
    closed = []

    class Broken:
        def reset(self, seed):
            raise RolloutError("no world")

        def close(self):
            closed.append(True)

    info = environment_info("babyai")._replace(make=lambda task: Broken())
    with pytest.raises(RolloutError, match="no world"):
        look(info, "goto", 0)
    assert closed == [True]
