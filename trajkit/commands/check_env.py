"""Check that an environment keeps its promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from trajkit._core.output.console import Cell, Meter, line, plural, table_text, talk
from trajkit._core.output.result import Result
from trajkit.commands.options.types import Count, Option, Settings, Tasks, many
from trajkit.commands.place import texts
from trajkit.environments.contract import Check, Status


class Checks(list[Check], Result):
    """Each check of an environment with its status.

    Args:
        checks: The checks.
        env_id: The environment.
        settings: Its settings.
        seeds: The seeds that were played.
    """

    def __init__(
        self, checks: Sequence[Check], env_id: str, settings: Mapping[str, str], seeds: Sequence[int]
    ) -> None:
        super().__init__(checks)
        self.env_id, self.settings, self.seeds = env_id, settings, seeds

    @property
    def exit_code(self) -> int:
        """1 if a check failed."""
        return int(any(one.status == Status.FAILED for one in self))

    def to_json(self) -> dict[str, Any]:
        """What was played, the number of checks by status, and each check."""
        return {
            "env_id": self.env_id,
            "settings": self.settings,
            "tasks": list(dict.fromkeys(one.task for one in self)),
            "seeds": self.seeds,
            **{f"n_{status.value}": n for status, n in self._tally().items()},
            "checks": [one._asdict() for one in self],
        }

    def __str__(self) -> str:
        n_tasks = len({one.task for one in self})
        rows = [
            (name, status, _tasks_of(group, n_tasks), group[0].detail)
            for (name, status), group in grouped(self).items()
        ]
        told = ", ".join(f"{n:,} {status.value}" for status, n in self._tally().items() if n)
        table = table_text([Cell("check"), Cell("result"), Cell("task"), Cell("seen")], rows)
        return "\n".join((table, line(f"{self.env_id}  {plural(len(self), 'check')}: {told}")))

    def _tally(self) -> dict[Status, int]:
        n_by_status = Counter(one.status for one in self)
        return {status: n_by_status[status] for status in Status}


def grouped(checks: Sequence[Check]) -> dict[tuple[str, str], list[Check]]:
    """The checks of the tasks, by name and status."""
    groups: dict[tuple[str, str], list[Check]] = {}
    for one in checks:
        groups.setdefault((one.name, one.status), []).append(one)
    return groups


def _tasks_of(group: Sequence[Check], n_tasks: int) -> str:
    if n_tasks == 1 or len(group) < n_tasks:
        return ", ".join(one.task for one in group)
    return f"all {n_tasks}"


def check_env(
    env_id: Annotated[str, Option(metavar="ENVIRONMENT")],
    *,
    env_set: Settings | None = None,
    task: Tasks = (),
    seeds: Annotated[str, Option(metavar="A:B")] = "0:5",
    steps: Count = 1000,
    timeout: Annotated[float, Option(least=0, is_open=True, metavar="SECONDS")] = 60.0,
) -> Checks:
    """Check that an environment keeps its promises: babyai, my_pkg.env:MyEnv, or gym:Maze-v0.

    It plays episodes of random actions: the same seed must give the same world, also in a fresh process and
    beside other episodes; episodes must end; nothing may reach stdout; and so on. The exit code is 1 if a
    check fails.

    Args:
        env_id: The environment.
        env_set: A setting of the environment. May be repeated.
        task: A task, or a game. May be repeated. Default: all.
        seeds: Seeds to play, A to B-1, or 1,5,9.
        steps: An episode that has not ended after N steps counts as endless.
        timeout: Time limit of one check, in seconds.

    Raises:
        RequestError: There is no such environment, task or setting.

    Example:
        trajkit check-env my_pkg.env:MyEnv --seeds 0:20
    """
    from trajkit.environments.contract import check
    from trajkit.environments.quiet import kept_stdout, overheard
    from trajkit.rollouts.seeds import chosen_seeds

    tasks = () if "all" in many(task) else tuple(dict.fromkeys(many(task)))
    chosen, settings = list(chosen_seeds(seeds=seeds)), texts(env_set)
    found: list[Check] = []
    with kept_stdout(), overheard(), Meter() as meter:
        for one in check(env_id, settings, tasks=tasks, seeds=chosen, n_steps=steps, limit_s=timeout):
            found.append(one)
            meter.show(f"{one.task}: {one.name}", len(found), None)
    for (name, _), group in grouped(found).items():
        if group[0].hint:
            talk(f"{name}: {group[0].hint}")
    return Checks(found, env_id, settings, chosen)
