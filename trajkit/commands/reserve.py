"""Reserve the worlds of some seeds for evaluation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from trajkit._core.output.console import line, plural, talk
from trajkit._core.output.result import Result
from trajkit.commands.options.types import Option, Settings, Tasks, many
from trajkit.commands.place import texts
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.curation.reserve import Reserved


class Reservations(list["Reserved"], Result):
    """The worlds that are reserved, each with the file that reserves it.

    Args:
        reserved: The worlds.
        is_list: Whether the JSON is a list: they were listed, not made.
    """

    def __init__(self, reserved: Iterable[Reserved], *, is_list: bool = False) -> None:
        super().__init__(reserved)
        self._is_list = is_list

    def to_json(self) -> Any:
        """A reservation with its file; a list of them if they were listed."""
        if self._is_list:
            return [{"path": str(each.path), **each.reservation.model_dump(mode="json")} for each in self]
        (new,) = self
        return {"path": str(new.path), "is_new": new.is_new, **new.reservation.model_dump(mode="json")}

    def __str__(self) -> str:
        return "\n".join(
            line(f"{each.path}  {each.reservation}  {plural(len(each.reservation.states), 'initial state')}")
            for each in self
        )


def reserve(
    env_id: Annotated[str | None, Option(metavar="ENVIRONMENT")] = None,
    *,
    seeds: Annotated[str | None, Option(metavar="SEEDS")] = None,
    task: Tasks = (),
    env_set: Settings | None = None,
    no_states: bool = False,
    dry_run: bool = False,
) -> Reservations:
    """Reserve the worlds of some seeds for evaluation, or list those that are reserved.

    The nearest trajkit.toml from here upward keeps them, with the hashes of the initial states; if there is
    none, one is made at the root of the project. `trajkit rollout --purpose train` refuses these seeds, and
    `trajkit leak` and every training job refuse their episodes. To free them, remove their table there.

    Args:
        env_id: The environment. Default: list the reserved worlds.
        seeds: A:B (A to B-1), A:B:STEP, 1,5,9, or a file of them.
        task: A task, or a game. May be repeated. Default: all.
        env_set: A setting of the environment. May be repeated.
        no_states: Reserve the seeds alone; the environment is not started.
        dry_run: Print the reservation and write nothing.

    Raises:
        RequestError: There is no such environment or task, or no seeds are named.

    Example:
        trajkit reserve babyai --seeds 200:220
    """
    from trajkit._core.settings import project, project_files
    from trajkit.curation.reserve import Reserved
    from trajkit.curation.reserve import reserve as keep

    if env_id is None:
        if seeds or many(task) or env_set or no_states or dry_run:
            raise RequestError("no ENVIRONMENT given", hint="trajkit reserve babyai --seeds 200:220")
        each_file = ((path, project(path.parent)) for path in project_files())
        listed = Reservations(
            (Reserved(path, each, is_new=False) for path, found in each_file for each in found.reserved),
            is_list=True,
        )
        if not listed:
            talk("nothing is reserved")
        return listed
    if seeds is None:
        raise RequestError(f"no --seeds for {env_id}", hint=f"trajkit reserve {env_id} --seeds 200:220")
    done = keep(
        env_id,
        seeds=seeds,
        tasks=many(task),
        settings=texts(env_set),
        with_states=not no_states,
        dry_run=dry_run,
    )
    if not done.is_new:
        talk("it was reserved already: nothing was written")
    elif dry_run:
        talk("dry run: nothing was written")
    return Reservations([done])
