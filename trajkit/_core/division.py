"""Divide work among processes: the interface that a room needs of a command's engine."""

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
    """A folder that all of them see, for files too large to return."""

    def map(self, function: Callable[[Task], Found], tasks: Sequence[Task]) -> Sequence[Found]:
        """Call a module's function with each task, in any process, and return the results in order.

        The tasks and the results are small and picklable. A task may run twice.
        """


def in_shard(index: int, n: int, text: str) -> str:
    """Return an error text of one of the shards, with the number of the shard, from 1."""
    return f"shard {index + 1} of {n}, {text}"


def shards_folder(goal: Path) -> Path:
    """Return the folder for the shards of a command that writes `goal`; the same command finds it again.

    It is beside the goal. If the goal is at an address, it is among trajkit's files in the working folder,
    where all processes see the shards; only the result is sent.
    """
    if isinstance(goal, Address):
        key = hashlib.sha256(str(goal).encode()).hexdigest()[:12]
        return (STATE_FOLDER / "shards" / f"{goal.name}-{key}").absolute()
    goal = goal.absolute()
    return goal.with_name(f".{goal.name}.shards")


def own_folder(folder: Path, name: str) -> Path:
    """Make a folder for one try of a task: any other try of it has another one."""
    folder.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))
