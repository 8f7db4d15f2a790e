"""Load a user's environment by its name `my_pkg.env:MyEnv`: a class, a function or an `EnvironmentInfo`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from trajkit._core.files import sha256_file
from trajkit.environments.base import (
    DEFAULT_SUCCESS,
    DEFAULT_TASK,
    ActionRule,
    Environment,
    EnvironmentInfo,
)
from trajkit.environments.guard import Memory, guarded, raised
from trajkit.environments.module import attribute, imported
from trajkit.environments.quiet import quiet
from trajkit.environments.settings import converted, parameters
from trajkit.errors import QueryError, RequestError, RolloutError, TrajkitError
from trajkit.schema.success import parse_success

GYM = "gym:"
"""Prefix of environments that are registered with Gymnasium, such as `gym:my_pkg.envs:Maze-v0`."""

TASK = "task"
"""The parameter that gets the task."""


def load(spec: str, settings: Mapping[str, str], *, taken: Collection[str] = ()) -> EnvironmentInfo:
    """Describe a user's environment.

    Args:
        spec: `module:name`, importable from the working folder, or `gym:` and an id of Gymnasium.
        settings: Raw texts by name, for the parameters of the class or the function.
        taken: Names of other environments.

    Raises:
        RequestError: It cannot be imported, is not an environment, or does not have a setting.
        MissingExtra: Gymnasium is not installed.
    """
    if spec.startswith(GYM):
        from trajkit.environments.gym import registered

        return _checked(registered(spec, settings), spec, taken)
    target = attribute(spec, noun="environment")
    if isinstance(target, EnvironmentInfo):
        return _checked(with_settings(target, settings, of=spec), spec, taken)
    if not callable(target):
        raise RequestError(
            f"{spec} is {type(target).__name__}, not a class or a function",
            hint="name its class, or a function: each worker of a rollout creates its own",
        )
    known = parameters(target)
    if is_gymnasium(target):
        from trajkit.environments.gym import described

        env_id = getattr(target, "env_id", spec)
        return _checked(described(target, known, spec, settings, env_id=env_id), spec, taken)
    if known_result(target) is EnvironmentInfo:
        with quiet():
            info = target(**converted(settings, known, of=spec))
        if not isinstance(info, EnvironmentInfo):
            raise RequestError(f"{spec} returned {type(info).__name__}, not an EnvironmentInfo")
        return _checked(info, spec, taken)
    arguments = converted(settings, _without_task(known, settings, spec), of=spec)
    info = EnvironmentInfo(
        env_id=getattr(target, "env_id", spec),
        tasks=tasks_of(target, known, spec),
        rule=getattr(target, "action_rule", None),
        success=getattr(target, "success", DEFAULT_SUCCESS),
        make=maker(target, arguments, takes_task=TASK in known),
    )
    return _checked(info, spec, taken)


def code_digest(spec: str) -> str | None:
    """Return the sha256 of the file of the module in `module:name`; None if the spec names no such file.

    Raises:
        RequestError: The module cannot be imported.
    """
    name, has_name, _ = spec.removeprefix(GYM).partition(":")
    file = imported(name).__file__ if has_name else None
    return None if file is None else sha256_file(Path(file))


def maker(
    call: Callable[..., Any], arguments: Mapping[str, Any], *, takes_task: bool
) -> Callable[[str], Any]:
    """Return a function that creates the environment for a task, always with the same arguments."""
    if takes_task:
        return lambda task: call(**arguments, **{TASK: task})
    return lambda task: call(**arguments)


def with_settings(info: EnvironmentInfo, settings: Mapping[str, str], *, of: str) -> EnvironmentInfo:
    """Return the description with settings bound to `make`, after the task.

    Raises:
        RequestError: There is no such setting, or a required one is missing.
    """
    make, known = info.make, parameters(info.make)
    arguments = converted(settings, dict(list(known.items())[1:]), of=of)
    return info._replace(make=lambda task: make(task, **arguments)) if arguments else info


def is_gymnasium(target: Any) -> bool:
    """Return whether a class, or a function's return type, is one of Gymnasium, without importing it."""
    kind = target if isinstance(target, type) else known_result(target)
    classes = kind.__mro__ if isinstance(kind, type) else ()
    return any((one.__module__, one.__name__) == ("gymnasium.core", "Env") for one in classes)


def known_result(target: Callable[..., Any]) -> Any:
    """Return the annotated return type of a function; None for a class or without an annotation."""
    if isinstance(target, type):
        return None
    try:
        result = inspect.signature(target, eval_str=True).return_annotation
    except Exception:  # noqa: BLE001 - annotations are code of the user and may fail in any way
        return None
    return None if result is inspect.Signature.empty else result


def tasks_of(target: Any, known: Mapping[str, inspect.Parameter], spec: str) -> tuple[str, ...]:
    """Return the declared tasks, else the allowed values of the parameter `task`, else the default task.

    Raises:
        RequestError: It has a parameter `task` and declares no tasks, or the other way round.
    """
    declared = getattr(target, "tasks", None)
    if declared is not None:
        if not isinstance(declared, tuple | list):
            raise RequestError(
                f"{spec}: tasks is {type(declared).__name__}, not a tuple of names", hint='tasks = ("easy",)'
            )
        if len(declared) > 1 and TASK not in known:
            raise RequestError(
                f"{spec} has {len(declared)} tasks, but no parameter 'task'",
                hint="def __init__(self, task: str)",
            )
        return tuple(declared)
    if TASK not in known:
        return (DEFAULT_TASK,)
    annotation, default = known[TASK].annotation, known[TASK].default
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if isinstance(default, str):
        return (default,)
    raise RequestError(
        f"{spec} has a parameter 'task', but declares no tasks", hint='tasks = ("easy", "hard")'
    )


def _without_task(
    known: Mapping[str, inspect.Parameter], settings: Mapping[str, str], spec: str
) -> dict[str, inspect.Parameter]:
    if TASK in settings and TASK in known:
        raise RequestError(f"{spec}: the task is not a setting", hint=f"--task {settings[TASK]}")
    return {name: parameter for name, parameter in known.items() if name != TASK}


def _checked(info: EnvironmentInfo, spec: str, taken: Collection[str]) -> EnvironmentInfo:
    """Check the description and return it with a `make` that wraps every environment.

    Raises:
        RequestError: A declaration is invalid.
    """
    if not isinstance(info.env_id, str) or not info.env_id.strip() or info.env_id in taken:
        raise RequestError(
            f"{spec}: env_id cannot be {info.env_id!r}", hint=f"a name other than {', '.join(taken)}"
        )
    good = all(isinstance(task, str) and task.strip() and task != "all" for task in info.tasks)
    if not info.tasks or not good or len(set(info.tasks)) != len(info.tasks):
        raise RequestError(
            f"{spec}: tasks are {info.tasks!r}", hint="names, each once, at least one, none of them 'all'"
        )
    _check_rule(info.rule, spec)
    if not isinstance(info.success, str):
        raise RequestError(f"{spec}: success is {info.success!r}", hint=f"text, such as {DEFAULT_SUCCESS!r}")
    try:
        parse_success(info.success)
    except QueryError as error:
        raise RequestError(f"{spec}: success: {error.message}", hint=error.hint) from error
    return _with_guard(info, spec)


def _check_rule(rule: Any, spec: str) -> None:
    if rule is None:
        return
    sound = isinstance(rule, ActionRule) and isinstance(rule.actions, tuple) and rule.default in rule.actions
    if not sound or not all(isinstance(action, str) and action.strip() for action in rule.actions):
        raise RequestError(
            f"{spec}: action_rule is {rule!r}",
            hint='ActionRule(actions=("left", "right"), default="left"), the default one of the actions',
        )


def _with_guard(info: EnvironmentInfo, spec: str) -> EnvironmentInfo:
    memory, make = Memory(), info.make

    def make_guarded(task: str) -> Environment:
        if task not in info.tasks:
            raise RequestError(f"no task {task!r} in {info.env_id}", hint=f"tasks: {', '.join(info.tasks)}")
        try:
            with quiet():
                made: Any = make(task)
        except TrajkitError:
            raise
        except (Exception, SystemExit) as error:
            raise RolloutError(f"{spec} task {task!r} cannot be made: {raised(error)}") from error
        if is_gymnasium(type(made)):
            from trajkit.environments.gym import GymnasiumText

            made = GymnasiumText(made)
        return guarded(made, info, task, memory)

    return info._replace(make=make_guarded)
