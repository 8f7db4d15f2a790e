from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from trajkit.environments import typed_environment
from trajkit.environments.base import Environment, HasExpert, step_limit
from trajkit.environments.gym import GymnasiumText, TextOptions
from trajkit.errors import MissingExtra, RequestError, RolloutError

Module = Callable[[str], str]

WORLD = """
import gymnasium
from gymnasium import spaces

class Line(gymnasium.Env):
    '''Ten places in a row; the goal is the last one.'''

    observation_space = spaces.Text(50)
    action_space = spaces.Discrete(2)
    mission = "Go to the end."

    def __init__(self, length: int = 10, start: int = 1):
        self.length, self.start = length, start

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.start + int(self.np_random.integers(3))
        return self.sight(), {"place": self.place, "map": "secret"}

    def step(self, action):
        self.place += 1 if action else -1
        is_there = self.place == self.length
        return self.sight(), float(is_there), is_there, False, {"place": self.place, "bonus": 2, "map": 3}

    def sight(self):
        return f"Place {self.place}."

gymnasium.register("Line-v0", entry_point=Line, max_episode_steps=20)
"""


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """What a test registers with Gymnasium is gone afterwards."""
    before = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


class Told(gymnasium.Env[Any, Any]):
    """Answers with what it is given."""

    def __init__(self, **told: Any) -> None:
        self.observation_space = told.get("observation_space", spaces.Text(10))
        self.action_space = told.get("action_space", spaces.Discrete(3))
        self.told = {"observation": "seen", "info": {"mission": "Do it."}, **told}
        self.acted: list[Any] = []
        for name in (
            "actions",
            "get_action_meanings",
            "legal_actions",
            "expert_action",
            "max_steps",
            "mission",
        ):
            if name in told:
                setattr(self, name, told[name])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.told["observation"], self.told["info"]

    def step(self, action: Any) -> Any:
        self.acted.append(action)
        return self.told["observation"], np.float32(0.5), np.bool_(False), False, self.told.get("infos", {})


def begun(env: gymnasium.Env[Any, Any], **options: Any) -> Any:
    world = GymnasiumText(env, TextOptions(**options))
    world.reset(1)
    return world


def made(spec: str, **settings: str) -> Environment:
    info = typed_environment(spec, settings)
    return info.make(info.tasks[0])


def test_a_class_of_gymnasium_is_an_environment(module: Module) -> None:
    spec = f"{module(WORLD)}:Line"
    world = made(spec, actions="left,right", length="4")
    start = world.reset(5)

    assert (world.env_id, world.task) == (spec, "default")
    assert start.mission == "Go to the end."
    assert start.initial_state_hash.startswith("text:")
    assert world.legal_actions() == ("left", "right")
    assert world.statistics() == {"place": float(start.observation[6:-1])}
    first = world.step("right")
    assert first[1:] == (first.reward, first.terminated, False, "right", True)
    assert world.reset(5) == start


def test_a_registered_one_is_found_by_its_id_with_its_time_limit(module: Module) -> None:
    name = module(WORLD)
    world = made(f"gym:{name}:Line-v0", start="-100", actions="left,right")
    world.reset(0)
    results = [world.step("right") for _ in range(20)]

    assert step_limit(world) == 20
    assert [one.truncated for one in results] == [False] * 19 + [True]
    assert not any(one.terminated for one in results)
    assert made("gym:Line-v0", max_episode_steps="3").reset(0).mission == "Go to the end."
    shorter = made("gym:Line-v0", max_episode_steps="3")
    shorter.reset(0)
    assert step_limit(shorter) == 3


def test_success_at_the_last_step_allowed_is_both_ends(module: Module) -> None:
    module_name = module(WORLD)
    world = made(f"gym:{module_name}:Line-v0", max_episode_steps="1", length="2", actions="left,right")
    ends = set()
    for seed in range(20):
        world.reset(seed)
        result = world.step("right")
        ends.add((result.reward, result.terminated, result.truncated))

    assert ends == {(1.0, True, True), (0.0, False, True)}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gym:Nowhere-v3", "Gymnasium has no environment 'Nowhere-v3'"),
        ("gym:CartPole-v99", "Gymnasium has no environment 'CartPole-v99'"),
        ("gym:", "Gymnasium has no environment ''"),
        ("gym:not_there_at_all:Line-v0", "there is no module 'not_there_at_all'"),
    ],
)
def test_an_id_that_is_not_registered_is_refused(spec: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        typed_environment(spec)


def test_a_setting_that_neither_side_takes_is_refused(module: Module) -> None:
    name = module(WORLD)

    with pytest.raises(RequestError, match=r"takes no setting 'lenght' \(did you mean length\?"):
        typed_environment(f"gym:{name}:Line-v0", {"lenght": "3"})
    with pytest.raises(
        RequestError, match=r"takes no setting 'observation_kee' \(did you mean observation_key"
    ):
        typed_environment(f"{name}:Line", {"observation_kee": "text"})


def test_a_function_that_returns_one_is_adapted(module: Module) -> None:
    name = module(
        f"{WORLD}\ndef build(length: int) -> Line:\n    return Line(length)\n\n"
        "def plain():\n    return gymnasium.wrappers.TimeLimit(Line(), 7)\n"
    )
    annotated = made(f"{name}:build", length="4", actions="left,right")
    plain = made(f"{name}:plain")
    plain.reset(0)

    assert annotated.reset(0).observation.startswith("Place")
    assert annotated.legal_actions() == ("left", "right")
    assert plain.legal_actions() == ("0", "1")
    assert step_limit(plain) == 7


def test_success_is_said_by_the_class_or_by_a_setting(module: Module) -> None:
    name = module(f"{WORLD}\nclass Far(Line):\n    success = 'place >= 10'\n    tasks = ('a',)\n")

    assert typed_environment(f"{name}:Far")[1:4] == (("a",), None, "place >= 10")
    assert typed_environment(f"{name}:Far", {"success": "place >= 5"}).success == "place >= 5"
    assert typed_environment(f"{name}:Line").success == "episode_return > 0"


@pytest.mark.parametrize(
    ("space", "observation", "options", "text"),
    [
        (spaces.Text(10), "seen", {}, "seen"),
        (spaces.Dict(text=spaces.Text(9), image=spaces.Box(0, 1)), {"text": "one"}, {}, "one"),
        (spaces.Dict(mission=spaces.Text(9), sight=spaces.Text(9)), {"sight": "two"}, {}, "two"),
        (spaces.Dict(a=spaces.Text(9), b=spaces.Text(9)), {"b": "three"}, {"observation_key": "b"}, "three"),
        (spaces.Box(0, 1, (2,)), np.zeros(2), {"observation_text": str}, "[0. 0.]"),
        (spaces.Discrete(4), 3, {"observation_text": "at {}".format}, "at 3"),
    ],
)
def test_the_text_is_found_in_an_observation(
    space: Any, observation: Any, options: dict[str, Any], text: str
) -> None:
    world = GymnasiumText(Told(observation_space=space, observation=observation), TextOptions(**options))

    assert world.reset(0).observation == text
    assert world.step("0").observation == text


@pytest.mark.parametrize(
    ("space", "options", "message"),
    [
        (
            spaces.Box(0, 1, (2,)),
            {},
            r"the observation of Told is not text: Box.*observation_text=my_pkg.env:describe",
        ),
        (spaces.Dict(a=spaces.Discrete(2)), {}, "the observation of Told is not text: Dict"),
        (
            spaces.Dict(a=spaces.Text(9), b=spaces.Text(9)),
            {},
            r"Told observes several texts: a, b \(--env-set observation_key=a\)",
        ),
        (spaces.Dict(a=spaces.Text(9)), {"observation_key": "b"}, "the observation of Told has no entry 'b'"),
        (spaces.Text(9), {"observation_key": "b"}, "the observation of Told has no entry 'b'"),
    ],
)
def test_observations_without_text_are_refused(space: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        GymnasiumText(Told(observation_space=space), TextOptions(**options))


class Listed(enum.IntEnum):
    stay = 0
    walk = 1
    jump = 2


@pytest.mark.parametrize(
    ("parts", "options", "names"),
    [
        ({}, {}, ("0", "1", "2")),
        ({"action_space": spaces.Discrete(3, start=5)}, {}, ("5", "6", "7")),
        ({"actions": Listed}, {}, ("stay", "walk", "jump")),
        ({"get_action_meanings": lambda: ["NOOP", "UP", "DOWN"]}, {}, ("NOOP", "UP", "DOWN")),
        ({"get_action_meanings": lambda: ["UP", "UP", "DOWN"]}, {}, ("0", "1", "2")),
        ({"actions": Listed}, {"actions": ("a", "b", "c")}, ("a", "b", "c")),
    ],
)
def test_discrete_actions_have_names(parts: dict[str, Any], options: dict[str, Any], names: Any) -> None:
    env = Told(**parts)
    world = begun(env, **options)
    for name in names:
        assert world.step(name)[4:] == (name, True)

    start = int(env.action_space.start)
    assert world.legal_actions() == names
    assert env.acted == [start, start + 1, start + 2]


def test_an_answer_that_names_no_action_is_the_first_one_or_that_which_is_chosen() -> None:
    env = Told(actions=Listed)

    assert begun(env).step("fly")[4:] == ("stay", False)
    assert begun(env, default_action="jump").step(None)[4:] == ("jump", False)
    assert env.acted == [0, 2]


@pytest.mark.parametrize(
    ("space", "options", "message"),
    [
        (spaces.Box(0, 1), {}, r"the actions of Told are neither Discrete nor Text: Box"),
        (spaces.MultiDiscrete([2, 2]), {}, "neither Discrete nor Text: MultiDiscrete"),
        (spaces.Discrete(3), {"actions": ("a", "b")}, "Told has 3 actions; the names given are a, b"),
        (spaces.Discrete(2), {"actions": ("a", "a")}, "Told has 2 actions; the names given are a, a"),
        (spaces.Discrete(2), {"default_action": "a"}, r"Told has no action 'a' \(actions: 0, 1\)"),
    ],
)
def test_actions_that_cannot_be_said_are_refused(space: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        GymnasiumText(Told(action_space=space), TextOptions(**options))


def test_actions_of_text_are_handed_over_and_marked_by_their_space() -> None:
    env = Told(action_space=spaces.Text(5, charset="abc "))
    world = begun(env)
    results = [world.step(text) for text in ("ab c", "xyz", None, "abcabc")]

    assert env.acted == ["ab c", "xyz", "", "abcabc"]
    assert [one.action_valid for one in results] == [True, False, False, False]
    assert world.legal_actions() == ()
    assert begun(env, default_action="a").step("xyz")[4:] == ("a", False)


def test_the_mission_comes_from_the_first_place_that_has_one() -> None:
    observation = {"mission": "Of the observation.", "text": "seen"}
    space = spaces.Dict(mission=spaces.Text(9), text=spaces.Text(9))

    def mission(**parts: Any) -> str:
        options = TextOptions(mission=parts.pop("option", None))
        return GymnasiumText(Told(observation_space=space, **parts), options).reset(0).mission

    assert mission(observation=observation, info={"mission": "Of info."}, option="Mine.") == "Mine."
    assert mission(observation=observation, info={"mission": "Of info."}) == "Of info."
    assert mission(observation=observation, info={}, mission="Its own.") == "Of the observation."
    assert mission(observation={"text": "seen"}, info={}, mission="Its own.") == "Its own."
    with pytest.raises(RolloutError, match=r"Told has no mission \(--env-set mission="):
        mission(observation={"text": "seen"}, info={})


def test_numbers_of_info_are_statistics() -> None:
    info = {
        "mission": "Do it.",
        "n": 1,
        "share": np.float64(0.5),
        "won": np.bool_(False),
        "map": "x",
        "a b": 3,
        "episode_return": 9.0,
    }
    world = begun(Told(info=info, infos={"n": 2, "won": np.bool_(True), "bonus": 4, "map": 3}))

    assert world.statistics() == {"n": 1, "share": 0.5, "won": False}
    world.step("0")
    assert world.statistics() == {"n": 2, "share": 0.5, "won": True}
    assert world.unlisted == {"bonus", "map"}


def test_statistics_that_are_named_are_those_and_zero_until_there_is_one() -> None:
    world = begun(
        Told(info={"mission": "Do it.", "n": 1}, infos={"is_success": True}), statistics=("is_success",)
    )

    assert world.statistics() == {"is_success": 0}
    world.step("0")
    assert world.statistics() == {"is_success": True}


def test_legal_actions_an_expert_and_a_state_hash_are_used_where_there_are() -> None:
    parts = {"info": {"mission": "Do it.", "initial_state_hash": "abc"}}
    offers = {"legal_actions": lambda: ("1",), "expert_action": lambda: "2", "max_steps": 12}
    world = GymnasiumText(Told(**parts, **offers))

    assert world.reset(0).initial_state_hash == "abc"
    assert (world.legal_actions(), world.expert_action(), world.max_steps) == (("1",), "2", 12)
    assert isinstance(world, HasExpert)
    assert not isinstance(GymnasiumText(Told()), HasExpert)


def test_a_step_of_the_old_kind_is_told_so(module: Module) -> None:
    old = "class Old(Line):\n    def step(self, action):\n        return self.sight(), 0.0, False, {}\n"
    name = module(f"{WORLD}\n{old}")
    world = made(f"{name}:Old")
    world.reset(3)

    with pytest.raises(RolloutError, match="seed 3 step 0: step: step did not return five values"):
        world.step("0")


def test_without_gymnasium_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)

    with pytest.raises(MissingExtra, match="this needs the package gymnasium"):
        typed_environment("gym:CartPole-v1")


def test_minigrid_can_be_played_through_the_adapter(module: Module) -> None:
    name = module("def describe(observation):\n    return f\"You face {observation['direction']}.\"\n")
    world = made("gym:minigrid:MiniGrid-Empty-5x5-v0", observation_text=f"{name}:describe")
    start = world.reset(0)

    assert start[:2] == ("get to the green goal square", "You face 0.")
    assert world.step("right").observation == "You face 1."
    assert world.legal_actions()[:3] == ("left", "right", "forward")
    assert step_limit(world) == 100
    world.close()
