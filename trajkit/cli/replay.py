"""`trajkit replay`: play a store's episodes again, and say whether everything is as it is stored."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._core import console
from trajkit.cli.settings import env_set
from trajkit.commands.place import last_store
from trajkit.errors import DataError

if TYPE_CHECKING:
    from trajkit.curation.judged import Replay
    from trajkit.curation.replay import Replayed

_EPILOG = """\
Compared are, byte by byte, the initial state's hash, and of each step the observation, the action executed,
its validity, the reward and the ends. What is not stored is not compared. The environment is the one of
trajkit's that the episode names, or --env: code that only the store names is not run. Settings and limit of
steps are those of the rollout in the lineage, else --env-set and --max-steps. A difference makes the exit
code 1.
"""


@click.command(epilog=_EPILOG)
@click.argument("store", required=False)
@click.option("--fill", is_flag=True, help="Add rewards, ends and executed actions that the store lacks.")
@click.option("--only-verified", is_flag=True, help="Leave out the episodes that are not verified.")
@click.option("--env", metavar="ENVIRONMENT", help="The environment, such as my_pkg.env:MyEnv.")
@env_set
@click.option("--max-steps", type=click.IntRange(min=1), help="The rollout's own limit of steps.")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many play side by side.",
)
@click.option(
    "-o",
    "--output",
    "goal",
    type=click.Path(path_type=Path),
    help="Write a store that says what was verified.",
)
@click.option("--dry-run", is_flag=True, help="With --fill or --only-verified: write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def replay(
    store: str | None,
    fill: bool,
    only_verified: bool,
    env: str | None,
    env_settings: dict[str, str],
    max_steps: int | None,
    processes: int,
    goal: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Play the episodes of STORE again from their seeds; without one, of the last store written here.

    \b
    trajkit replay stores/train
    trajkit replay --fill stores/exported -o stores/filled
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.commands.place import goal_of
    from trajkit.curation.replay import replay as replay_store

    if goal is None and (fill or only_verified) and not dry_run:
        goal = goal_of("replay", None)
    with console.Meter() as meter:
        done = replay_store(
            store or last_store(console.talk),
            None if dry_run else goal,
            fill=fill,
            only_verified=only_verified,
            env=env,
            settings=env_settings or None,
            max_steps=max_steps,
            processes=processes,
            dry_run=dry_run,
            on_progress=meter.show,
        )
    _print(done, None if dry_run else goal, as_json=as_json)
    if done.replay.n_different and not only_verified:
        raise _different(done.replay)


def _print(done: Replayed, goal: Path | None, *, as_json: bool) -> None:
    from trajkit.cli.derived import print_derived

    if done.entry is not None:
        more = {"replay": _as_json(done.replay)}
        if not as_json:
            _table(done.replay)
            console.result()
        print_derived(done.entry, done.manifest, goal, as_json=as_json, more=more)
    elif as_json:
        console.result_json(_as_json(done.replay))
    else:
        _table(done.replay)


def _as_json(found: Replay) -> dict[str, Any]:
    return {**found.model_dump(mode="json"), "share_verified": found.share_verified}


def _table(found: Replay) -> None:
    rows = [("verified", found.n_verified), ("different", found.n_different)]
    rows += [(f"not replayed: {reason}", n) for reason, n in found.unchecked.items()]
    console.table(
        [console.Cell(""), console.Cell("episodes", is_number=True), console.Cell("share", is_number=True)],
        [(name, console.count(n), f"{n / found.n_episodes:.1%}") for name, n in rows],
    )
    steps = f"{console.count(found.n_steps_verified)} of {console.plural(found.n_steps_replayed, 'step')}"
    console.result(f"{steps} verified, {console.plural(found.n_values, 'value')} compared")
    if found.n_steps_filled:
        console.result(f"{console.plural(found.n_steps_filled, 'step')} filled")
    for difference in found.differences:
        console.result(str(difference))
    if more := found.n_differences - len(found.differences):
        console.result(f"… and {console.plural(more, 'difference')} more")


def _different(found: Replay) -> DataError:
    episodes = console.plural(found.n_different, "episode")
    verb = "is" if found.n_different == 1 else "are"
    return DataError(
        f"{episodes} of {found.store} {verb} not what the environment gives: {found.differences[0]}",
        hint="--only-verified -o STORE leaves them out; `trajkit check-env` looks at the environment",
    )
