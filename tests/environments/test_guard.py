from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trajkit.environments.base import ActionRule, EnvironmentInfo, HasExpert, Result, Start
from trajkit.environments.guard import Guarded, Memory, guarded
from trajkit.errors import RequestError, RolloutError


class Steps:
    """Ends after five steps; takes a part of it from elsewhere."""

    def __init__(self, **parts: Callable[..., Any]) -> None:
        self.n = 0
        self.said: list[str | None] = []
        for name, part in parts.items():
            setattr(self, name, part)

    def reset(self, seed: int) -> Any:
        self.n = 0
        return "Take five steps.", f"Seed {seed}."

    def step(self, text: str | None) -> Any:
        self.n += 1
        self.said.append(text)
        return f"Step {self.n}.", float(self.n == 5), self.n == 5, False


def guard(
    inner: Any,
    *,
    rule: ActionRule | None = None,
    success: str = "episode_return > 0",
    memory: Memory | None = None,
) -> Guarded:
    info = EnvironmentInfo("mine", ("walk",), rule, success, lambda task: guard(inner))
    world = guarded(inner, info, "walk", memory or Memory())
    assert isinstance(world, Guarded)
    return world


WHERE = r"^mine task 'walk' seed 3 step"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "reset returned None, not Start, or mission and first observation"),
        ("text", "reset returned the str 'text', not Start"),
        (("one",), r"reset returned the tuple \('one',\), not Start"),
        (("a", "b", "c", "d", "e"), "reset returned the tuple"),
        ((b"go", "seen"), "the mission is the bytes b'go', not text"),
        (("go", b"seen"), "the observation is the bytes b'seen', not text"),
        (("go", {"text": "x"}), "the observation is the dict {'text': 'x'}, not text"),
        ((" ", "seen"), "the mission is empty .describe the agent's goal"),
        (("go", "half \ud800"), "the observation has half of a surrogate pair at character 5"),
        (Start("go", "seen", 12), "the initial-state hash is the int 12, not text"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_start_is_named(returned: Any, message: str) -> None:
    with pytest.raises(RolloutError, match=f"{WHERE} 0: {message}"):
        guard(Steps(reset=lambda seed: returned)).reset(3)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "step returned None, not Result, or observation, reward, terminated and truncated"),
        ("text", "step returned the str 'text', not Result"),
        (("x", 0.0, True, False, {}), "step returned the tuple .*a subclass of gymnasium.Env"),
        ((b"x", 0.0, True, False), "the observation is the bytes b'x', not text"),
        ((None, 0.0, True, False), "the observation is None, not text"),
        (("x", None, True, False), "the reward is None, not a finite number"),
        (("x", "1", True, False), "the reward is the str '1', not a finite number"),
        (("x", math.nan, True, False), "the reward is the float nan, not a finite number"),
        (("x", -math.inf, True, False), "the reward is the float -inf, not a finite number"),
        (("x", 10**400, True, False), "the reward is the int 1000.*, not a finite number"),
        (("x", 0.0, 1, False), "terminated is the int 1, not True or False"),
        (("x", 0.0, None, False), "terminated is None, not True or False"),
        (("x", 0.0, True, "no"), "truncated is the str 'no', not True or False"),
        (Result("x", 0.0, True, False, "go", 1), "action_valid is the int 1"),  # type: ignore[arg-type]
        (Result("x", 0.0, True, False, 7), "the executed action is the int 7"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_result_is_named_with_its_step(returned: Any, message: str) -> None:
    inner = Steps()
    world = guard(inner)
    world.reset(3)
    world.step("go")
    inner.step = lambda text: returned  # type: ignore[method-assign]

    with pytest.raises(RolloutError, match=f"{WHERE} 1: {message}"):
        world.step("go")
    with pytest.raises(RolloutError, match="the episode is over"):
        world.step("go")


def test_what_is_raised_is_named_with_step_and_line_and_keeps_its_cause() -> None:
    def fail(text: str | None) -> Any:
        raise KeyError("no such door\nat all")

    world = guard(Steps(step=fail))
    world.reset(3)

    with pytest.raises(
        RolloutError, match=WHERE + r" 0: step raised KeyError: .no such door.*at all. \(test_guard.py:\d+\)$"
    ) as caught:
        world.step("go")
    assert isinstance(caught.value.__cause__, KeyError)
    assert "\n" not in caught.value.message


def test_a_failure_inside_a_library_is_placed_in_the_environments_own_file() -> None:
    world = guard(Steps(step=lambda text: random.Random(0).choice([])))
    world.reset(3)
    with pytest.raises(RolloutError, match=r"IndexError: .* \(test_guard.py:\d+\)$"):
        world.step("go")


def test_an_environment_that_ends_the_program_is_an_error_and_ctrl_c_is_not() -> None:
    with pytest.raises(RolloutError, match="reset raised SystemExit: 2"):
        guard(Steps(reset=lambda seed: sys.exit(2))).reset(3)

    def interrupted(seed: int) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard(Steps(reset=interrupted)).reset(3)


def test_our_own_errors_keep_their_hint_and_others_of_ours_pass() -> None:
    def ours(kind: type[RolloutError | RequestError]) -> Callable[[int], Any]:
        def reset(seed: int) -> Any:
            raise kind("the game is missing", hint="install it")

        return reset

    with pytest.raises(RolloutError, match=f"{WHERE} 0: reset: the game is missing") as caught:
        guard(Steps(reset=ours(RolloutError))).reset(3)
    assert caught.value.hint == "install it"
    with pytest.raises(RequestError, match=r"^the game is missing"):
        guard(Steps(reset=ours(RequestError))).reset(3)


def test_an_environment_of_coroutines_is_told_so() -> None:
    async def step(text: str | None) -> Any: ...

    world = guard(Steps(step=step))
    world.reset(3)
    with pytest.raises(RolloutError, match=r"step returned the coroutine .*write def, not async def"):
        world.step("go")


def test_what_has_no_step_is_no_environment() -> None:
    with pytest.raises(RolloutError, match=r"mine task 'walk': object has no method 'reset'"):
        guard(object())


def test_numbers_of_other_kinds_become_floats_and_flags_booleans() -> None:
    inner = Steps(
        step=lambda text: (np.str_("seen"), np.float32(0.5), np.bool_(False), np.True_),
        statistics=lambda: {"n": 3, "share": np.float64(0.25), "won": True, "numpy_won": np.bool_(True)},
    )
    world = guard(inner)
    world.reset(0)
    result = world.step("go")

    assert result == ("seen", 0.5, False, True, "go", True)
    assert [type(value) for value in result] == [str, float, bool, bool, str, bool]
    assert world.statistics() == {"n": 3.0, "share": 0.25, "won": 1.0, "numpy_won": 1.0}
    assert {type(value) for value in world.statistics().values()} == {float}


def test_without_a_rule_what_was_said_is_handed_over_and_judged_by_the_legal_actions() -> None:
    inner = Steps(legal_actions=lambda: ["go", "stay"])
    world = guard(inner)
    world.reset(0)
    results = [world.step(text) for text in ("go", "fly", None, "")]

    assert inner.said == ["go", "fly", None, ""]
    assert [(one.action_executed, one.action_valid) for one in results] == [
        ("go", True),
        ("fly", False),
        ("", False),
        ("", False),
    ]
    assert world.legal_actions() == ("go", "stay")


def test_where_any_text_is_an_action_only_silence_is_none() -> None:
    world = guard(Steps())
    world.reset(0)

    assert [world.step(text).action_valid for text in ("a poem", None, " \n")] == [True, False, False]


def test_with_a_rule_only_its_actions_arrive_and_its_judgement_counts() -> None:
    inner = Steps()
    world = guard(inner, rule=ActionRule(("go", "stay"), "stay"))
    world.reset(0)
    results = [world.step(text) for text in ("go", "fly", None)]

    assert inner.said == ["go", "stay", "stay"]
    assert [one[4:] for one in results] == [("go", True), ("stay", False), ("stay", False)]
    assert world.legal_actions() == ("go", "stay")


def test_an_environment_that_does_not_follow_its_rule_is_told_so() -> None:
    inner = Steps(step=lambda text: Result("x", 0.0, False, False, "jump", True))
    world = guard(inner, rule=ActionRule(("go", "stay"), "stay"))
    world.reset(3)

    with pytest.raises(RolloutError, match=r"step\('go'\) executed 'jump'; its action_rule says 'go'"):
        world.step("go")


def test_what_the_environment_says_it_carried_out_is_believed() -> None:
    inner = Steps(
        step=lambda text: Result("x", 0.0, False, False, "wait", False), legal_actions=lambda: ("go",)
    )
    world = guard(inner)
    world.reset(0)

    assert world.step("go")[4:] == ("wait", False)


@pytest.mark.parametrize(
    ("offered", "message"),
    [
        ("go", "legal_actions returned the str 'go', not a tuple with actions"),
        ((), r"legal_actions returned the tuple \(\), not a tuple with actions"),
        (("go", 3), "a legal action is the int 3, not text"),
        (("go", " "), "legal_actions has an empty or duplicate action"),
        (("go", "go"), "legal_actions has an empty or duplicate action"),
    ],
)
def test_wrong_legal_actions_are_named(offered: Any, message: str) -> None:
    world = guard(Steps(legal_actions=lambda: offered))
    world.reset(3)
    with pytest.raises(RolloutError, match=f"{WHERE} 0: {message}"):
        world.legal_actions()


def test_legal_actions_are_asked_for_once_a_state() -> None:
    asked: list[int] = []
    inner = Steps(legal_actions=lambda: asked.append(1) or ("go",))
    world = guard(inner)
    world.reset(0)
    world.legal_actions()
    world.legal_actions()
    world.step("go")
    world.legal_actions()

    assert len(asked) == 2


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([1.0], r"statistics returned the list \[1.0\], not a dict"),
        ({"a b": 1}, "the statistic the str 'a b' cannot be the name of a metric"),
        ({"1st": 1}, "cannot be the name of a metric"),
        ({3: 1}, "the statistic the int 3 cannot be the name"),
        ({"x" * 65: 1}, "cannot be the name of a metric"),
        ({"episode_return": 1}, "'episode_return' has a reserved name"),
        ({"comment": 1}, "'comment' has a reserved name"),
        ({"won": None}, "the statistic won is None, not a finite number"),
        ({"won": "yes"}, "the statistic won is the str 'yes', not a finite number"),
        ({"won": math.inf}, "the statistic won is the float inf, not a finite number"),
    ],
)
def test_wrong_statistics_are_named_when_the_episode_begins(scores: Any, message: str) -> None:
    with pytest.raises(RolloutError, match=f"{WHERE} 0: .*{message}"):
        guard(Steps(statistics=lambda: scores)).reset(3)


def test_statistics_that_come_and_go_are_named() -> None:
    inner = Steps()
    inner.statistics = lambda: {"won": 1} if inner.n else {}  # type: ignore[attr-defined]
    world = guard(inner)
    world.reset(3)
    world.step("go")

    with pytest.raises(RolloutError, match=f"{WHERE} 1: statistics are not those after the reset: won"):
        world.statistics()


def test_success_by_a_statistic_that_is_not_there_is_refused_at_the_beginning() -> None:
    inner = Steps(statistics=lambda: {"found": 0})

    with pytest.raises(
        RolloutError, match="success is 'won >= 1', and there is no statistic 'won'"
    ) as caught:
        guard(inner, success="won >= 1").reset(3)
    assert caught.value.hint == "statistics: found, episode_return"


def test_a_world_that_changes_under_the_same_seed_is_noticed_by_any_environment_of_the_run() -> None:
    chance, memory = random.Random(0), Memory()
    worlds = [
        guard(Steps(reset=lambda seed: ("Go.", f"You stand at {chance.random()}.")), memory=memory)
        for _ in range(2)
    ]
    worlds[0].reset(3)
    worlds[1].reset(4)

    with pytest.raises(RolloutError, match=f"{WHERE} 0: the same seed began a different world before"):
        worlds[1].reset(3)


def test_without_a_state_hash_the_text_is_hashed_and_marked() -> None:
    starts = [guard(Steps()).reset(seed) for seed in (3, 3, 4)]
    hashes = [start.initial_state_hash for start in starts]

    assert hashes[0] == hashes[1] != hashes[2]
    assert all(one.startswith("text:") and len(one) == 69 for one in hashes)
    assert (
        guard(Steps(reset=lambda seed: Start("Go.", "Seen.", "mine"))).reset(0).initial_state_hash == "mine"
    )


def test_an_expert_is_there_where_the_environment_has_one() -> None:
    inner = Steps(expert_action=lambda: "go")
    world = guard(inner)

    assert isinstance(world, HasExpert)
    assert not isinstance(guard(Steps()), HasExpert)
    with pytest.raises(RolloutError, match="no episode was begun"):
        world.expert_action()
    world.reset(3)
    assert world.expert_action() == "go"
    inner.expert_action = lambda: None  # type: ignore[attr-defined]
    with pytest.raises(RolloutError, match="the expert's action is None, not text"):
        world.expert_action()


def test_closing_lets_go_once_and_nothing_begins_afterwards() -> None:
    closed: list[int] = []
    world = guard(Steps(close=lambda: closed.append(1)))
    world.reset(0)
    world.close()
    world.close()

    assert closed == [1]
    with pytest.raises(RolloutError, match="the environment is closed"):
        world.reset(0)


def test_a_close_that_fails_is_logged_and_hurts_no_episode(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise OSError("gone")

    world = guard(Steps(close=fail))
    world.close()

    assert "mine task 'walk': close raised OSError: gone" in caplog.text
    assert world.close_error is not None


def test_what_is_printed_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    def step(text: str | None) -> Any:
        sys.stdout.write("thinking\n")
        return "x", 0.0, False, False

    world = guard(Steps(step=step))
    world.reset(0)
    world.step("go")
    sys.stdout.write("result\n")

    assert capsys.readouterr() == ("result\n", "thinking\n")


@pytest.mark.parametrize(
    ("stated", "limit"), [(7, 7), (np.int64(9), 9), (None, None), (0, None), ("7", None)]
)
def test_a_step_limit_is_a_whole_number_or_unknown(stated: Any, limit: int | None) -> None:
    assert guard(Steps(max_steps=stated)).max_steps == limit
