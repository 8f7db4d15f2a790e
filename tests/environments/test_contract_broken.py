"""Worlds that break the contract: each is found, under the right check, with the reason."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import time
from collections.abc import Callable

import pytest

from tests.matrix import daily
from trajkit.environments import typed_environment
from trajkit.environments.contract import Check, Status, Trial, check, checks_of
from trajkit.errors import MissingExtra

BROKEN = {
    "ends the program": (
        "def reset(self, seed):\n    raise SystemExit(3)",
        "begins",
        "seed 0 step 0: reset raised SystemExit: 3",
    ),
    "raises": (
        "def step(self, text):\n    return super().step(text) if self.n < 3 else [][0]",
        "plays",
        r"seed 0 step 3: step raised IndexError: .*\(written_\d+.py:\d+\)",
    ),
    "never ends": (
        "def step(self, text):\n    return 'x', 0.0, False, False",
        "episodes end",
        "seed 0 did not end in 60 steps, and states no limit",
    ),
    "goes past its limit": (
        "max_steps = 80\ndef step(self, text):\n    return 'x', 0.0, False, False",
        "episodes end",
        "seed 0 did not end in 80 steps, although max_steps requires it",
    ),
    "is cut off before its limit": (
        "max_steps = 9\ndef step(self, text):\n    return *super().step(text)[:2], False, self.n == 5",
        "episodes end",
        "seed 0 was truncated after 5 steps; max_steps is 9",
    ),
    "begins otherwise each time": (
        "def reset(self, seed):\n    super().reset(seed)\n    return 'Go.', str(random.random())",
        "same seed, same world",
        "seed 3 played again differs: at the start, the observation: ",
    ),
    "goes on otherwise each time": (
        "def step(self, text):\n    return str(random.random()), *super().step(text)[1:]",
        "same seed, same world",
        r"seed 3 played again differs: after step 0, the observation: '0\.\d+' and '0\.\d+'",
    ),
    "keeps something from the episode before": (
        "total = 0\n"
        "def step(self, text):\n    self.total += 1\n    return str(self.total), *super().step(text)[1:]",
        "same seed, same world",
        "seed 3 played again differs: after step 0, the observation: '16' and '1'",
    ),
    "begins otherwise in each process": (
        "def reset(self, seed):\n    super().reset(seed)\n    return 'Go.', f'{seed} ' + str(hash('x'))",
        "same in a fresh process",
        "seed 0 differs in a fresh process: at the start, the observation: ",
    ),
    "shares its state": (
        "at = [0]\n"
        "def reset(self, seed):\n    self.at[0] = seed\n    return super().reset(seed)\n"
        "def step(self, text):\n    self.at[0] += 1\n    return str(self.at[0]), *super().step(text)[1:]",
        "two at once",
        "seed 0 differs when another episode is played beside it: after step 0, the observation: '1' and '4'",
    ),
    "prints": (
        "def step(self, text):\n    print('thinking hard')\n    return super().step(text)",
        "nothing on stdout",
        "it prints, which a rollout sends to stderr: 'thinking hard' and 19 more lines",
    ),
    "writes to the descriptor": (
        "def close(self):\n    import os; os.write(1, b'bye')",
        "nothing on stdout",
        "this reached stdout past Python's sys.stdout: 'bye'",
    ),
    "offers what it does not do": (
        "from trajkit.environments.base import Result\n"
        "def legal_actions(self):\n    return 'go', 'stay'\n"
        "def step(self, text):\n    return self.Result(*super().step(text), 'go', True)",
        "legal actions",
        "the legal action 'stay' was executed as 'go', valid",
    ),
    "takes everything for valid": (
        "from trajkit.environments.base import Result\n"
        "def legal_actions(self):\n    return ('go',)\n"
        "def step(self, text):\n    return self.Result(*super().step(text), 'go', True)",
        "odd answers",
        "None is not a legal action, but is marked as valid",
    ),
    "trips over silence": (
        "def step(self, text):\n    text.strip()\n    return super().step(text)",
        "odd answers",
        "step raised AttributeError: 'NoneType' object has no attribute 'strip'",
    ),
    "has an expert that cannot": (
        "success = 'episode_return >= 2'\ndef expert_action(self):\n    return 'go'",
        "expert",
        "solves 0 of 4 seeds, such as seed 0 in 5 steps",
    ),
    "has an expert that breaks the rules": (
        "def legal_actions(self):\n    return ('go',)\ndef expert_action(self):\n    return 'fly'",
        "expert",
        "seed 0 step 0: its 'fly' is not a legal action",
    ),
    "cannot be closed": (
        "def close(self):\n    raise OSError('gone')",
        "closing",
        "close raised OSError: gone",
    ),
}


@pytest.mark.parametrize("how", daily(BROKEN, 8))
def test_a_broken_promise_is_found_and_named(module: Callable[[str], str], how: str) -> None:
    body, name, message = BROKEN[how]
    spec = module("class Mine(Steps):\n" + textwrap.indent(body, "    ")) + ":Mine"
    first = next(one for one in check(spec, seeds=range(4), n_steps=60) if one.status == Status.FAILED)

    assert first.name == name
    assert_matches(message, first.detail)


WORRYING = {
    "every seed is the same": (
        "def reset(self, seed):\n    return super().reset(0)",
        "seeds differ",
        "all 4 seeds begin alike",
    ),
    "a step limit that looks like an end": (
        "def step(self, text):\n    return *super().step(text)[:1], 0.0, self.n == 5, False",
        "terminated or truncated",
        "every episode was terminated after exactly 5 steps",
    ),
    "it cannot fail": ("success = 'episode_return >= 0'", "success", "episode_return >= 0: 4 of 4 random"),
    "nothing to see": (
        "def reset(self, seed):\n    super().reset(seed)\n    return f'Go to {seed}.', ' '",
        "begins",
        "the first observation of seed 0 is empty",
    ),
    "an expert that sometimes fails": (
        "success = 'lucky > 0'\n"
        "def statistics(self):\n    return {'lucky': self.place % 2}\n"
        "def expert_action(self):\n    return 'go'",
        "expert",
        r"solves \d of 4 seeds; not \d",
    ),
    "a slow step": (
        "def step(self, text):\n    import time; time.sleep(0.03)\n    return 'end', 0.0, True, False",
        "speed",
        r"\d\d\.\d ms a step",
    ),
}


@pytest.mark.parametrize("how", daily(WORRYING, 3))
def test_what_may_be_meant_is_a_warning(module: Callable[[str], str], how: str) -> None:
    body, name, message = WORRYING[how]
    found = findings(module("class Mine(Steps):\n" + textwrap.indent(body, "    ")) + ":Mine")

    assert found[name].status == Status.WARNING
    assert_matches(message, found[name].detail)
    assert [one for one in found.values() if one.status == Status.FAILED] == []


def findings(spec: str) -> dict[str, Check]:
    return {one.name: one for one in check(spec, seeds=range(4), n_steps=60)}


def assert_matches(pattern: str, text: str) -> None:
    assert re.search(pattern, text), text


def test_a_step_that_never_comes_back_is_stopped_and_placed(module: Callable[[str], str]) -> None:
    name = module("class Mine(Steps):\n    def step(self, text):\n        while True: pass\n")
    found = {one.name: one for one in check(f"{name}:Mine", seeds=[0], limit_s=0.3)}

    assert found["plays"].status == Status.FAILED
    assert_matches(rf"it did not return in 0.3 s \({name}.py:\d+\)", found["plays"].detail)
    assert {one.status for one in found.values() if one.name not in ("begins", "plays")} == {Status.SKIPPED}


def test_a_fresh_process_that_never_comes_back_is_ended_once(
    module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = module(
        """
        import os, time

        class Mine(Steps):
            def step(self, text):
                time.sleep(0 if os.environ["PLAYS_IN"] == str(os.getpid()) else 60)
                return super().step(text)
        """
    )
    monkeypatch.setenv("PLAYS_IN", str(os.getpid()))
    began = time.monotonic()
    found = {one.name: one for one in check(f"{name}:Mine", seeds=[0], limit_s=1.0)}

    assert found["same in a fresh process"].detail == "it did not return in 1 s"
    assert found["nothing on stdout"].status == Status.FAILED
    assert found["two at once"].status == Status.PASSED
    assert time.monotonic() - began < 30


def test_environments_are_closed_after_each_check(module: Callable[[str], str]) -> None:
    name = module(
        """
        class Mine(Steps):
            n_open = most = 0

            def __init__(self):
                Mine.n_open += 1
                Mine.most = max(Mine.most, Mine.n_open)

            def close(self):
                Mine.n_open -= 1
        """
    )
    spec = f"{name}:Mine"
    info = typed_environment(spec)
    trial = Trial(spec, {}, info, "default", seeds=(0, 1), n_steps=60, limit_s=60)
    assert {one.status for one in checks_of(trial)} <= {Status.PASSED, Status.SKIPPED, Status.WARNING}

    mine = sys.modules[name].Mine
    assert (mine.n_open, mine.most) == (0, 2)


def test_one_seed_is_enough(module: Callable[[str], str]) -> None:
    found = {one.name: one for one in check(f"{module('')}:Steps", seeds=[7])}

    assert found["seeds differ"].status == Status.SKIPPED
    assert {one.status for one in found.values()} <= {Status.PASSED, Status.SKIPPED}


def test_numbers_of_gymnasium_that_are_no_statistics_are_mentioned(module: Callable[[str], str]) -> None:
    name = module(
        """
        import gymnasium
        from gymnasium import spaces

        class Mine(gymnasium.Env):
            observation_space = spaces.Text(9)
            action_space = spaces.Discrete(2)
            mission = "Go."

            def reset(self, *, seed=None, options=None):
                return f"at {seed}", {"n": 1}

            def step(self, action):
                return "end", 0.0, True, False, {"n": 2, "bonus": 3}
        """
    )
    found = findings(f"{name}:Mine")["numbers"]

    assert found.detail == "metrics: n, episode_return"
    assert found.hint == "numbers in info that are not metrics: bonus (--env-set statistics=...)"


def test_a_package_that_is_missing_is_no_finding(
    module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "minigrid", None)
    with pytest.raises(MissingExtra):
        list(check("babyai", tasks=["goto"]))
