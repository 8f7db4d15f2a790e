"""`trajkit check-env`: whether an environment keeps what every environment promises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from trajkit._core import console
from trajkit.cli.settings import env_set

if TYPE_CHECKING:
    from trajkit.environments.contract import Check


@click.command("check-env")
@click.argument("env_id", metavar="ENVIRONMENT")
@env_set
@click.option(
    "--task", "--game", "tasks", multiple=True, help="A task, or a game; may be repeated.  [default: all]"
)
@click.option(
    "--seeds", metavar="A:B", default="0:5", show_default=True, help="Seeds to play, A to B-1, or 1,5,9."
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="An episode that has not ended after so many is one that never ends.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Longest that one check may take, in seconds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check_env(
    env_id: str,
    env_settings: dict[str, str],
    tasks: tuple[str, ...],
    seeds: str,
    steps: int,
    timeout: float,
    as_json: bool,
) -> int:
    """Check that ENVIRONMENT keeps its promises: babyai, my_pkg.env:MyEnv, or gym:Maze-v0.

    It plays episodes of random actions: the same seed must give the same world, also in a fresh process and
    beside other episodes; episodes must end; nothing may reach stdout; and so on. Ends with 1 when a check
    fails.
    """
    from trajkit.commands.checks import checked_tasks
    from trajkit.environments.contract import Status, check
    from trajkit.environments.quiet import kept_stdout, overheard
    from trajkit.rollouts.seeds import chosen_seeds

    chosen = list(chosen_seeds(seeds=seeds))
    found: list[Check] = []
    with kept_stdout(), overheard(), console.Meter() as meter:
        wanted = checked_tasks(tasks)
        for one in check(env_id, env_settings, tasks=wanted, seeds=chosen, n_steps=steps, limit_s=timeout):
            found.append(one)
            meter.show(f"{one.task}: {one.name}", len(found), None)
    n_failed = sum(one.status == Status.FAILED for one in found)
    if as_json:
        console.result_json(_document(env_id, env_settings, chosen, found))
    else:
        _print(env_id, found)
    return 1 if n_failed else 0


def _document(
    env_id: str, settings: dict[str, str], seeds: list[int], found: Sequence[Check]
) -> dict[str, Any]:
    tally = _tally(found)
    return {
        "env_id": env_id,
        "settings": settings,
        "tasks": list(dict.fromkeys(one.task for one in found)),
        "seeds": seeds,
        **{f"n_{status}": n for status, n in tally.items()},
        "checks": [one._asdict() for one in found],
    }


def _tally(found: Sequence[Check]) -> dict[str, int]:
    from trajkit.environments.contract import Status

    return {status.value: sum(one.status == status for one in found) for status in Status}


def _print(env_id: str, found: Sequence[Check]) -> None:
    """One row for each check and result; hints follow on stderr."""
    groups: dict[tuple[str, str], list[Check]] = {}
    for one in found:
        groups.setdefault((one.name, one.status), []).append(one)
    n_tasks = len({one.task for one in found})
    console.table(
        [console.Cell("check"), console.Cell("result"), console.Cell("task"), console.Cell("seen")],
        [
            (name, status, _tasks_of(group, n_tasks), group[0].detail)
            for (name, status), group in groups.items()
        ],
    )
    for (name, _), group in groups.items():
        if group[0].hint:
            console.talk(f"{name}: {group[0].hint}")
    said = [f"{n:,} {status}" for status, n in _tally(found).items() if n]
    console.result(f"{env_id}  {console.plural(len(found), 'check')}: {', '.join(said)}")


def _tasks_of(group: Sequence[Check], n_tasks: int) -> str:
    if n_tasks == 1 or len(group) < n_tasks:
        return ", ".join(one.task for one in group)
    return f"all {n_tasks}"
