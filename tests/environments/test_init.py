from __future__ import annotations

import pytest

from trajkit.environments import environment_info, known, make
from trajkit.errors import RequestError


def test_babyai_is_known_with_its_tasks_and_rule() -> None:
    info = environment_info("babyai")

    assert "babyai" in known()
    assert info.tasks == ("goto", "pickup", "open", "putnext", "pick_up_seq_go_to")
    assert info.rule is not None
    assert info.rule.actions == ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
    assert info.rule.default == "go forward"
    assert info.success == "progression >= 1"


def test_an_unknown_environment_is_refused_with_the_list() -> None:
    with pytest.raises(RequestError, match=r"no environment 'chess' \(known: babyai"):
        environment_info("chess")


def test_make_gives_the_task_that_was_asked_for() -> None:
    assert make("babyai", "open").task == "open"
