"""`trajkit reserve`: keep seeds for evaluation, once for a whole project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trajkit._core import console
from trajkit.cli.settings import env_set
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit._core.settings import Reservation

_EPILOG = """\
They are kept in the nearest trajkit.toml from here upward, with the hashes of the initial states; where there
is none, in one at the root of the project. `trajkit rollout --purpose train` refuses these seeds, and
`trajkit leak` and every training their episodes. To give one up, remove its table from the file. Without
ENVIRONMENT it lists what is reserved.
"""


@click.command(epilog=_EPILOG)
@click.argument("env_id", metavar="ENVIRONMENT", required=False)
@click.option("--seeds", metavar="SEEDS", help="A:B (A to B-1), A:B:STEP, 1,5,9, or a file of them.")
@click.option(
    "--task", "--game", "tasks", multiple=True, help="A task, or a game; may be repeated.  [default: all]"
)
@env_set
@click.option("--no-states", is_flag=True, help="Keep the seeds alone; the environment is not begun.")
@click.option("--dry-run", is_flag=True, help="Print what would be kept and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def reserve(
    env_id: str | None,
    seeds: str | None,
    tasks: tuple[str, ...],
    env_settings: dict[str, str],
    no_states: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Keep the worlds of some seeds for evaluation.

    \b
    trajkit reserve babyai --seeds 200:220
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.curation.reserve import reserve as keep

    if env_id is None:
        if seeds or tasks or env_settings or no_states or dry_run:
            raise RequestError("no ENVIRONMENT given", hint="trajkit reserve babyai --seeds 200:220")
        _list(as_json)
        return
    if seeds is None:
        raise RequestError(f"which seeds of {env_id}?", hint=f"trajkit reserve {env_id} --seeds 200:220")
    done = keep(
        env_id,
        seeds=seeds,
        tasks=tasks,
        settings=env_settings,
        with_states=not no_states,
        dry_run=dry_run,
    )
    if as_json:
        more = {"path": str(done.path), "is_new": done.is_new}
        console.result_json({**more, **_shown(done.reservation)})
    else:
        n_states = console.plural(len(done.reservation.states), "initial state")
        console.result(f"{done.path}  {done.reservation}  {n_states}")
    if not done.is_new:
        console.talk("it was reserved already: nothing was written")
    elif dry_run:
        console.talk("dry run: nothing was written")


def _list(as_json: bool) -> None:
    from trajkit._core.settings import project, project_files

    found = [(path, each) for path in project_files() for each in project(path.parent).reserved]
    if as_json:
        console.result_json([{"path": str(path), **_shown(each)} for path, each in found])
        return
    for path, each in found:
        console.result(f"{path}  {each}  {console.plural(len(each.states), 'initial state')}")
    if not found:
        console.talk("nothing is reserved")


def _shown(reservation: Reservation) -> dict[str, Any]:
    return reservation.model_dump(mode="json")
