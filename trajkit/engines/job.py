"""The tasks of a job as files in a shared folder: any process on any machine can run one of them.

`tasks.json` has the function and its items, `done/` a file for each finished task, `failed/` one for each
that failed. A file is whole or absent, so a task may run twice, and the same job continues where it
stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trajkit
from trajkit import errors
from trajkit._core.files import unwritable, write_json
from trajkit.errors import RequestError, TrajkitError

_TASKS = "tasks.json"


@dataclass(frozen=True)
class Job:
    """A function and the items that it is called with, in a folder."""

    folder: Path
    """Its own folder, absolute."""
    what: str
    """What the tasks do, such as `mask`; for progress and errors."""
    n: int
    """Number of tasks."""

    def result(self, index: int) -> Any:
        """Return the result of a finished task."""
        return _read(self._done(index))

    def is_done(self, index: int) -> bool:
        """Whether a task has finished."""
        return self._done(index).exists()

    def missing(self) -> list[int]:
        """Return the tasks that have not finished."""
        return [index for index in range(self.n) if not self.is_done(index)]

    def failure(self, index: int) -> TrajkitError | None:
        """Return the error of a task; None if it did not fail."""
        try:
            found = _read(self._failed(index))
        except FileNotFoundError:
            return None
        kind = getattr(errors, found["kind"], TrajkitError)
        error: TrajkitError = kind(found["message"], hint=found["hint"])
        return error

    def named(self, index: int) -> str:
        """Return the name of a task for messages, such as `mask, shard 2 of 5`."""
        return f"{self.what}, shard {index + 1} of {self.n}"

    def forget_failures(self) -> None:
        """Remove the errors of an earlier run."""
        for index in range(self.n):
            self._failed(index).unlink(missing_ok=True)

    def run(self, index: int) -> None:
        """Run one task in this process; one that has finished is not run again.

        Raises:
            TrajkitError: It failed; the message begins with the task's name. The error is also kept in
                `failed/`.
        """
        if self.is_done(index):
            return
        tasks = _read(self.folder / _TASKS)
        function = getattr(importlib.import_module(tasks["module"]), tasks["function"])
        try:
            if tasks["trajkit_version"] != trajkit.__version__:
                raise RequestError(
                    f"this worker has trajkit {trajkit.__version__}, the command {tasks['trajkit_version']}",
                    hint="install the same version everywhere",
                )
            # a worker elsewhere starts in another folder; the user's paths are relative to the command's
            with (
                contextlib.chdir(tasks["here"]) if Path(tasks["here"]).is_dir() else contextlib.nullcontext()
            ):
                result = function(tasks["items"][index])
            self._failed(index).unlink(missing_ok=True)
            write_json(self._done(index), result)
        except TrajkitError as error:
            error.message = f"{self.named(index)}: {error.message}"
            self._fail(index, type(error).__name__, error.message, error.hint)
            raise
        except (
            BaseException
        ) as error:  # also Ctrl-C and out of memory: the process that waits for the task must see it
            kind = type(error).__name__  # its text may hold a secret
            self._fail(
                index, "TrajkitError", f"{self.named(index)} stopped with {kind}", "its log has the details"
            )
            raise

    def _done(self, index: int) -> Path:
        return self.folder / "done" / f"{index:05}.json"

    def _failed(self, index: int) -> Path:
        return self.folder / "failed" / f"{index:05}.json"

    def _fail(self, index: int, kind: str, message: str, hint: str | None) -> None:
        write_json(self._failed(index), {"kind": kind, "message": message, "hint": hint})


def begun(function: Callable[[Any], Any], items: Sequence[Any], *, what: str, folder: Path) -> Job:
    """Write the tasks of a job, or find those of an earlier run with the same function and items.

    Args:
        function: A function of a module, which takes an item and returns its result.
        items: What to call it with. Items and results are JSON: paths and small facts, never data.
        what: What the tasks do.
        folder: A folder that every worker sees under this path.

    Raises:
        StoreError: The folder cannot be written.
    """
    tasks = {
        "module": function.__module__,
        "function": function.__qualname__,
        "what": what,
        "trajkit_version": trajkit.__version__,
        "here": str(Path.cwd()),
        "items": list(items),
    }
    key = hashlib.sha256(json.dumps(tasks, sort_keys=True).encode()).hexdigest()[:12]
    own = Path(folder).absolute() / f"{re.sub(r'[^a-z0-9]+', '-', what.lower())}-{key}"
    try:
        write_json(own / _TASKS, tasks)
    except OSError as error:
        raise unwritable(own, error) from error
    return Job(own, what, len(items))


def opened(folder: Path) -> Job:
    """Open a job that was begun.

    Raises:
        RequestError: The folder has no job.
    """
    try:
        tasks = _read(folder / _TASKS)
    except FileNotFoundError as error:
        raise RequestError(f"{folder} has no {_TASKS}", hint="this machine may not see it") from error
    return Job(folder.absolute(), tasks["what"], len(tasks["items"]))


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
