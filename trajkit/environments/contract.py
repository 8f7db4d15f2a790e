"""Check that an environment keeps the protocol, for `trajkit check-env` and for your own tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from trajkit.environments import typed_environment
from trajkit.environments.checks.promises import CHECKS, GATES
from trajkit.environments.checks.trial import Finding, Status, Trial, failed, skipped
from trajkit.environments.guard import place
from trajkit.environments.watch import TooLong, watch
from trajkit.errors import MissingExtra, RequestError, TrajkitError

__all__ = ["CHECKS", "Check", "Status", "Trial", "check", "checks_of"]


class Check(NamedTuple):
    """One check of one task."""

    name: str
    task: str
    status: Status
    detail: str
    """The result of the check."""
    hint: str | None
    """How to fix it."""


def check(
    env_id: str,
    settings: Mapping[str, str] | None = None,
    *,
    tasks: Sequence[str] = (),
    seeds: Sequence[int] = range(5),
    n_steps: int = 1000,
    limit_s: float = 60.0,
) -> Iterator[Check]:
    """Run every check on an environment and yield each result as soon as it is known.

    If a task cannot be started or played at all, its other checks are skipped.

    Args:
        env_id: The environment, as for `typed_environment`.
        settings: Raw texts of `--env-set`.
        tasks: Tasks to check. Default: all.
        seeds: Seeds to play, at least one.
        n_steps: Number of steps after which an episode is stopped.
        limit_s: Time limit of each check, in seconds.

    Raises:
        RequestError: There is no such environment or task, or the environment does not have a setting.
        MissingExtra: The package of the environment is not installed.

    Example:
        >>> found = list(check("babyai", tasks=["goto"], seeds=range(3)))
        >>> {one.name for one in found if one.status == "failed"}
        set()
    """
    settings = settings or {}
    info = typed_environment(env_id, settings)
    for task in tasks:
        if task not in info.tasks:
            raise RequestError(f"no task {task!r} in {env_id}", hint=f"tasks: {', '.join(info.tasks)}")
    for task in tasks or info.tasks:
        trial = Trial(env_id, settings, info, task, seeds=seeds, n_steps=n_steps, limit_s=limit_s)
        yield from checks_of(trial)


def checks_of(trial: Trial) -> Iterator[Check]:
    """Run every check on one task."""
    blocker: str | None = None
    for name, function in CHECKS.items():
        if blocker is not None:
            found = skipped(f"not tried: {blocker!r} failed")
        else:
            found = _found(function, trial)
            if found.status == Status.FAILED and name in GATES:
                blocker = name
        yield Check(name, trial.asked.task, *found)


def _found(function: Callable[[Trial], Finding], trial: Trial) -> Finding:
    try:
        with watch(trial.limit_s):
            return function(trial)
    except TooLong as late:
        return failed(f"it did not return in {trial.limit_s:g} s{place(late)}", "look for an endless loop")
    except MissingExtra:
        raise
    except TrajkitError as error:
        return failed(error.message, error.hint)
    finally:
        trial.close()
