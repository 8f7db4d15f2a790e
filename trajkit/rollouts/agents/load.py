"""Load a user's own agent, named as `my_pkg.agent:MyAgent`, and find out how to call it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trajkit.environments.guard import raised
from trajkit.environments.module import attribute
from trajkit.environments.quiet import quiet
from trajkit.environments.settings import converted, parameters
from trajkit.errors import RequestError, TrajkitError
from trajkit.rollouts.agents.turn import Opening, Turn


class Player(NamedTuple):
    """The calls that an agent accepts."""

    act: Callable[[Any], Any]
    wants_turn: bool
    """Whether it gets the `Turn` instead of the observation."""
    begin: Callable[[Opening], Any] | None = None
    end: Callable[[dict[str, float] | None], Any] | None = None


def find_agent(spec: str, settings: Mapping[str, str]) -> Callable[[], Player]:
    """Return a factory of players, one per episode. A class is instantiated once here, to find errors early.

    Args:
        spec: `module:name` of a function, or of a class or an object with `act`; importable from the working
            folder.
        settings: Raw texts by name, for the parameters of the class or the function.

    Raises:
        RequestError: It cannot be imported or created, is not an agent, or does not take a setting.
    """
    target = attribute(spec, noun="agent")
    if isinstance(target, type):
        return _of_class(target, settings, spec)
    if callable(getattr(target, "act", None)):
        if settings:
            raise RequestError(
                f"{spec} is an object already, so it takes no setting {next(iter(settings))!r}",
                hint="name its class, or leave out --policy-set",
            )
        return functools.partial(_player, target, spec)
    if not callable(target):
        raise RequestError(
            f"{spec} is {type(target).__name__}, not an agent", hint="name a function, or a class with `act`"
        )
    return _of_function(target, settings, spec)


def _of_function(target: Callable[..., Any], settings: Mapping[str, str], spec: str) -> Callable[[], Player]:
    known = parameters(target)
    first = _first(target, spec)
    rest = {name: parameter for name, parameter in known.items() if name != first.name}
    values = converted(settings, rest, of=spec, option="--policy-set")
    player = Player(functools.partial(target, **values) if values else target, _wants_turn(first))
    return lambda: player


def _of_class(target: type, settings: Mapping[str, str], spec: str) -> Callable[[], Player]:
    """Return a factory that creates an agent per episode, unless the class is marked as shared."""
    if not callable(getattr(target, "act", None)):
        raise RequestError(f"{spec} has no method act", hint="def act(self, observation) -> str")
    values = converted(settings, parameters(target), of=spec, option="--policy-set")
    try:
        with quiet():
            first = _player(target(**values), spec)
    except TrajkitError:
        raise
    except (Exception, SystemExit) as error:
        raise RequestError(f"{spec} cannot be made: {raised(error)}") from error
    if getattr(target, "shared", False):
        return lambda: first
    spare = [first]

    def make() -> Player:
        try:
            return spare.pop()
        except IndexError:
            return _player(target(**values), spec)

    return make


def _player(agent: Any, spec: str) -> Player:
    begin, end = getattr(agent, "begin", None), getattr(agent, "end", None)
    return Player(agent.act, _wants_turn(_first(agent.act, spec)), begin, end)


def _first(act: Callable[..., Any], spec: str) -> inspect.Parameter:
    """Return the parameter that gets the observation or the turn."""
    try:
        given = list(inspect.signature(act).parameters.values())
    except (TypeError, ValueError) as error:
        raise RequestError(f"{spec} cannot be called with an observation: {error}") from error
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not given or given[0].kind not in by_place:
        raise RequestError(f"{spec} takes no observation", hint="def act(observation: str) -> str")
    return parameters(act).get(given[0].name, given[0])  # with its annotation resolved


def _wants_turn(first: inspect.Parameter) -> bool:
    return first.name == "turn" or first.annotation in (Turn, "Turn")
