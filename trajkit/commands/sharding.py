"""Run a command in shards (`--on ENGINE`), with the same result as in one process."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_type_hints

from trajkit._core.division import shards_folder
from trajkit._core.output.console import Meter
from trajkit._core.secrets import hidden, names_a_secret
from trajkit._core.settings import STATE_FOLDER
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.engines.engine import Engine

Task = TypeVar("Task")
Found = TypeVar("Found")


class Shards:
    """The division of a command among the processes of an engine. Use as a context manager.

    The folder of the shards is removed on success. After an error it stays: the same command continues from
    it.

    Args:
        engine: The engine.
        what: What the command does, for progress and errors.
        folder: A folder for tasks and files, which all processes see.
        reads: What the command reads, in its current state: if it has changed, nothing done before counts.
    """

    def __init__(self, engine: Engine, what: str, folder: Path, *, reads: str = "") -> None:
        self.n = engine.n_shards
        self.folder = folder.absolute()
        self._engine, self._what, self._reads = engine, what, reads
        self._meter = Meter()

    def __enter__(self) -> Self:
        self._meter.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._meter.__exit__(kind, error, trace)
        if error is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def map(self, function: Callable[[Task], Found], tasks: Sequence[Task]) -> list[Found]:
        """Call a function with each task; see `trajkit._core.division.Division`."""
        if not tasks:
            return []
        place = f"{function.__module__}:{function.__qualname__}"
        taken, given = _kinds(function)
        common = {"function": place, "reads": self._reads}
        items = [{**common, "task": taken.dump_python(task, mode="json")} for task in tasks]
        found: dict[int, Found] = {}
        running: Any = self._engine.map(
            run_task, items, what=self._what, folder=self.folder, on_progress=self._meter.show
        )
        with contextlib.closing(running) as results:
            for index, result in results:
                found[index] = given.validate_python(result)
        return [found[index] for index in range(len(tasks))]


def run_task(item: dict[str, Any]) -> Any:
    """Run one task; what it takes and returns is JSON."""
    module, _, name = item["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    taken, given = _kinds(function)
    return given.dump_python(function(taken.validate_python(item["task"])), mode="json")


@functools.cache
def _kinds(function: Callable[[Any], Any]) -> tuple[Any, Any]:
    """What turns the task of a function into JSON and back, and the same for its result."""
    from pydantic import TypeAdapter

    hints = get_type_hints(function)
    given = hints.pop("return")
    (taken,) = hints.values()
    return TypeAdapter(taken), TypeAdapter(given)


def shards_for(engine: Engine, what: str, goal: Path, *, reads: str) -> Shards:
    """The division of a command that writes `goal`, with the folder for its shards."""
    return Shards(engine, what, shards_folder(goal), reads=reads)


def shards_here(engine: Engine, what: str, *, reads: str) -> Shards:
    """The division of a command that writes nothing, with a folder among the files of trajkit."""
    return Shards(engine, what, STATE_FOLDER / "shards" / what, reads=reads)


def state_of(place: Path) -> str:
    """A digest of the names, sizes and times of change of a file, or of the files below a folder."""
    paths = sorted(place.rglob("*")) if place.is_dir() else [place]
    files = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths if path.is_file()]
    return hashlib.sha256(repr(files).encode("utf-8", "surrogateescape")).hexdigest()


def refuse_secrets(values: Iterable[tuple[str, str, str]]) -> None:
    """Raise if an option has a secret: the tasks of shards are kept in files.

    Args:
        values: Options, names of their settings (or the options again), and values.
    """
    for option, name, value in values:
        if names_a_secret(name) or hidden(value) != value:
            raise RequestError(
                f"{option} has a secret, and --on keeps the options of its shards in files",
                hint="put it into an environment variable that the workers have",
            )
