"""How work is divided among processes: what a room asks of the engine that a command was given."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

Task = TypeVar("Task")
Found = TypeVar("Found")


class Division(Protocol):
    """Several processes that work on the shards of one command."""

    n: int
    """Number of shards."""
    folder: Path
    """A folder that all of them see, for files too large to be returned."""

    def map(self, function: Callable[[Task], Found], tasks: Sequence[Task]) -> Sequence[Found]:
        """Call a function of a module with each task, in any process, and return the results in order.

        The tasks and the results are small and picklable. A task may run twice.
        """


def own_folder(folder: Path, name: str) -> Path:
    """Make a folder for one try of a task: another try of it, at the same time or later, has another one."""
    folder.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))
