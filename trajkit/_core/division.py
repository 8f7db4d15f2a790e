"""How work is divided among processes: what a room asks of the engine that a command was given."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from trajkit._core.address import Address
from trajkit._core.settings import STATE_FOLDER

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


def in_shard(index: int, n: int, text: str) -> str:
    """Return what is wrong in one of the shards, with the number of the shard, which counts from 1."""
    return f"shard {index + 1} of {n}, {text}"


def shards_folder(goal: Path) -> Path:
    """Return the folder for the shards of a command that writes `goal`; the same command finds it again.

    It is beside the goal. Where the goal is at an address, it is among the files of trajkit in the working
    folder: the shards are files that all processes see, and only what they become is sent.
    """
    if isinstance(goal, Address):
        key = hashlib.sha256(str(goal).encode()).hexdigest()[:12]
        return (STATE_FOLDER / "shards" / f"{goal.name}-{key}").absolute()
    goal = goal.absolute()
    return goal.with_name(f".{goal.name}.shards")


def own_folder(folder: Path, name: str) -> Path:
    """Make a folder for one try of a task: another try of it, at the same time or later, has another one."""
    folder.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))
