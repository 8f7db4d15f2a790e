"""Use Gymnasium environments whose observations are text, or can be turned into text."""

from __future__ import annotations

import enum
import inspect
import numbers
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, cast

from trajkit._core.lazy import need
from trajkit.environments.base import DEFAULT_SUCCESS, ActionRule, Environment, EnvironmentInfo, Result, Start
from trajkit.environments.guard import METRIC_NAME, RESERVED_NAMES, is_numpy_flag
from trajkit.environments.load import TASK, maker, tasks_of
from trajkit.environments.module import imported
from trajkit.environments.quiet import quiet
from trajkit.environments.settings import converted, parameters
from trajkit.errors import RequestError, RolloutError

MISSION = "mission"


@dataclass(frozen=True)
class TextOptions:
    """How a Gymnasium environment is turned into text. Each field can be set with `--env-set`."""

    observation_key: str | None = None
    """Key of the text in a dict observation. None: the only text in it."""
    observation_text: Callable[[Any], str] | None = None
    """Function that turns an observation into text; on the command line `my_pkg.env:describe`."""
    mission: str | None = None
    """The goal, as text. None: `mission` from the info or the observation of the reset, or the attribute."""
    actions: tuple[str, ...] = ()
    """Names of the discrete actions in order. Empty: the environment's own names, else numbers."""
    default_action: str | None = None
    """The action for an invalid answer. None: the first discrete action."""
    statistics: tuple[str, ...] = ()
    """Keys of info that become metrics, 0 until they appear. Empty: the numbers in the info of the reset."""
    success: str = DEFAULT_SUCCESS
    """The condition for success."""


def registered(spec: str, settings: Mapping[str, str]) -> EnvironmentInfo:
    """Describe an environment that is registered with Gymnasium.

    Args:
        spec: `gym:Maze-v0`, or `gym:my_pkg.envs:Maze-v0` to import a module first, which registers it.
        settings: Fields of `TextOptions`, `max_episode_steps`, and arguments of the environment.

    Raises:
        RequestError: There is no such id or setting.
        MissingExtra: Gymnasium is not installed.
    """
    gymnasium = need("gymnasium", extra="gymnasium")
    module, _, env_id = spec.partition(":")[2].rpartition(":")
    if module:
        imported(module)
    try:
        found = gymnasium.spec(env_id)
        entry = found.entry_point
        with quiet():
            creator = gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    except gymnasium.error.Error as error:
        raise RequestError(f"Gymnasium has no environment {env_id!r}", hint=_line(error)) from error
    except ImportError as error:
        raise RequestError(f"{spec} cannot be imported: {_line(error)}") from error
    limit = inspect.Parameter("max_episode_steps", _KEYWORD, annotation=int, default=None)
    known = {**parameters(creator), **{name: _optional(name) for name in found.kwargs}, limit.name: limit}

    def make(**arguments: Any) -> Any:
        return gymnasium.make(env_id, disable_env_checker=True, **arguments)

    return described(make, known, spec, settings, env_id=spec)


class _Actions(NamedTuple):
    """The conversion of an answer into a Gymnasium action."""

    names: tuple[str, ...]
    """Names of the discrete actions; empty if any text is an action."""
    default: str | None
    start: int
    """Number of the first discrete action."""
    space: Any


class GymnasiumText:
    """A Gymnasium environment with text observations and text actions.

    It uses `legal_actions` and `expert_action` of the environment, and `initial_state_hash` in the info of
    the reset, if they exist.

    Raises:
        RequestError: The observations are not text, or the actions cannot be written as text.
    """

    def __init__(self, env: Any, options: TextOptions | None = None) -> None:
        options = options or TextOptions()
        self._env = env
        self._options = options
        self._name = type(env.unwrapped).__name__
        self._read = _reader(env.observation_space, options, self._name)
        self._actions = _actions(env, options, self._name)
        self._scores: dict[str, Any] = {}
        self.unlisted: set[str] = set()
        """Numbers in info that are not statistics."""
        for offered in ("legal_actions", "expert_action"):
            if callable(getattr(env.unwrapped, offered, None)):
                setattr(self, offered, getattr(env.unwrapped, offered))

    @property
    def max_steps(self) -> int | None:
        """The time limit: of the registration, of a wrapper, or the attribute."""
        of_spec = getattr(self._env.spec, "max_episode_steps", None)
        if of_spec is not None:
            return int(of_spec)
        layer = self._env
        while layer is not layer.unwrapped:
            if type(layer).__name__ == "TimeLimit":
                return int(layer._max_episode_steps)
            layer = layer.env
        return getattr(layer, "max_steps", None)

    def reset(self, seed: int) -> Start:
        """Start the episode of this seed."""
        observation, info = self._env.reset(seed=seed)
        if self._options.statistics:
            self._scores = {name: info.get(name, 0) for name in self._options.statistics}
        else:
            self._scores = {name: value for name, value in info.items() if _is_score(name, value)}
        state_hash = info.get("initial_state_hash", "")
        return Start(self._mission(observation, info), self._read(observation), state_hash)

    def step(self, text: str | None) -> Result:
        """Execute an action."""
        action, executed, is_valid = self._resolved(text)
        answer = self._env.step(action)
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise RolloutError(
                "step did not return five values",
                hint="Gymnasium's are observation, reward, terminated, truncated and info",
            )
        observation, reward, terminated, truncated, info = answer
        for name, value in info.items():
            if name in self._scores:
                self._scores[name] = value
            elif _is_score(name, value):
                self.unlisted.add(name)
        return Result(self._read(observation), reward, terminated, truncated, executed, is_valid)

    def legal_actions(self) -> tuple[str, ...]:
        """Return the names of the discrete actions; empty if any text is an action."""
        return self._actions.names

    def statistics(self) -> dict[str, Any]:
        """Return the latest numbers of info."""
        return self._scores

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _resolved(self, text: str | None) -> tuple[Any, str, bool]:
        names, default, start, space = self._actions
        if names:
            rule = ActionRule(names, default or names[0])
            said, is_valid = rule.resolve(text)
            return start + names.index(said), said, is_valid
        is_valid = text is not None and bool(space.contains(text))
        said = (text or "") if is_valid or default is None else default
        return said, said, is_valid

    def _mission(self, observation: Any, info: Mapping[str, Any]) -> str:
        entries = observation if isinstance(observation, Mapping) else {}
        places = (
            self._options.mission,
            info.get(MISSION),
            entries.get(MISSION),
            getattr(self._env.unwrapped, MISSION, None),
        )
        for mission in places:
            if isinstance(mission, str) and mission.strip():
                return mission
        raise RolloutError(f"{self._name} has no mission", hint="--env-set mission='...'")


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def _optional(name: str) -> inspect.Parameter:
    return inspect.Parameter(name, _KEYWORD, default=None)


def described(
    make: Callable[..., Any],
    known: Mapping[str, inspect.Parameter],
    spec: str,
    settings: Mapping[str, str],
    *,
    env_id: str,
) -> EnvironmentInfo:
    """Describe a Gymnasium class, or a function that is annotated to return one.

    Args:
        make: The class or the function.
        known: Its parameters.
        spec: Its name.
        settings: Fields of `TextOptions`, and arguments of the class or the function.
        env_id: Name of the environment.

    Raises:
        RequestError: There is no such setting.
    """
    ours = {name: one for name, one in parameters(TextOptions).items() if name not in known}
    theirs = {name: one for name, one in known.items() if name != TASK}
    values = converted(settings, {**theirs, **ours}, of=spec)
    names = {field.name for field in fields(TextOptions)} & ours.keys()
    options = TextOptions(**{name: value for name, value in values.items() if name in names})
    arguments = {name: value for name, value in values.items() if name not in names}
    made = maker(make, arguments, takes_task=TASK in known)
    return EnvironmentInfo(
        env_id=env_id,
        tasks=tasks_of(make, known, spec),
        rule=None,
        success=options.success if "success" in values else getattr(make, "success", options.success),
        make=cast("Callable[[str], Environment]", lambda task: GymnasiumText(made(task), options)),
    )


def _reader(space: Any, options: TextOptions, name: str) -> Callable[[Any], Any]:
    """Return the function that turns an observation into text."""
    from gymnasium import spaces

    if options.observation_text is not None:
        return options.observation_text
    entries = space.spaces if isinstance(space, spaces.Dict) else {}
    key = options.observation_key
    if key is None and isinstance(space, spaces.Text):
        return lambda observation: observation
    texts = [entry for entry, inner in entries.items() if isinstance(inner, spaces.Text) and entry != MISSION]
    if key is None and len(texts) == 1:
        key = texts[0]
    if key is None and texts:
        raise RequestError(
            f"{name} observes several texts: {', '.join(texts)}", hint=f"--env-set observation_key={texts[0]}"
        )
    if key is None or key not in entries:
        what = f"has no entry {key!r}" if key is not None else f"is not text: {_short(space)}"
        raise RequestError(
            f"the observation of {name} {what}",
            hint="--env-set observation_text=my_pkg.env:describe names a function that turns it into text",
        )
    return lambda observation: observation[key]


def _actions(env: Any, options: TextOptions, name: str) -> _Actions:
    from gymnasium import spaces

    space = env.action_space
    if isinstance(space, spaces.Text):
        return _Actions((), options.default_action, 0, space)
    if not isinstance(space, spaces.Discrete):
        raise RequestError(
            f"the actions of {name} are neither Discrete nor Text: {_short(space)}",
            hint="write an environment around it: reset(seed) and step(text)",
        )
    n, start = int(space.n), int(space.start)
    names = options.actions or _own_names(env.unwrapped, n) or tuple(str(start + i) for i in range(n))
    if len(names) != n or len(set(names)) != n:
        raise RequestError(f"{name} has {n} actions; the names given are {', '.join(names)}")
    if options.default_action is not None and options.default_action not in names:
        raise RequestError(
            f"{name} has no action {options.default_action!r}", hint=f"actions: {', '.join(names)}"
        )
    return _Actions(names, options.default_action or names[0], start, space)


def _own_names(env: Any, n: int) -> tuple[str, ...]:
    """Return the environment's names of its actions (meanings or an enum); empty if they do not fit."""
    meanings, listed = getattr(env, "get_action_meanings", None), getattr(env, "actions", None)
    names: tuple[str, ...] = ()
    if callable(meanings):
        names = tuple(str(meaning) for meaning in meanings())
    elif isinstance(listed, type) and issubclass(listed, enum.IntEnum):
        names = tuple(member.name for member in sorted(listed))
    return names if len(set(names)) == n else ()


def _is_score(name: object, value: object) -> bool:
    is_name = isinstance(name, str) and METRIC_NAME.fullmatch(name) and name not in RESERVED_NAMES
    return bool(is_name) and (isinstance(value, numbers.Real) or is_numpy_flag(value))


def _line(error: BaseException) -> str:
    return re.sub(r"\s+", " ", str(error)).strip("`' ")


def _short(space: Any) -> str:
    text = _line(Exception(space))
    return text if len(text) <= 120 else text[:119] + "…"
