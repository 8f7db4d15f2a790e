"""A pool of environments for the next episodes, never more than are played at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from trajkit.environments.base import Environment


class Pool:
    """Lends environments by task, and makes new ones only where none waits.

    Args:
        make: Makes one for a task.
        most: How many may be open at once; as many as are lent at once, or more.
    """

    def __init__(self, make: Callable[[str], Environment], most: int) -> None:
        self._make = make
        self._most = most
        self._idle: dict[str, list[Environment]] = {}
        self.n_open = 0

    @contextlib.contextmanager
    def lent(self, task: str) -> Iterator[Environment]:
        """An environment for the time of a block; one in whose block something is raised is closed."""
        environment = self._take(task)
        try:
            yield environment
        except BaseException:
            self._close(environment)
            raise
        self._idle.setdefault(task, []).append(environment)

    def close(self) -> None:
        """Close those that wait."""
        for waiting in self._idle.values():
            while waiting:
                self._close(waiting.pop())

    def _take(self, task: str) -> Environment:
        if waiting := self._idle.get(task):
            return waiting.pop()
        if self.n_open >= self._most:
            self._close(next(waiting for waiting in self._idle.values() if waiting).pop())
        environment = self._make(task)
        self.n_open += 1
        return environment

    def _close(self, environment: Environment) -> None:
        self.n_open -= 1
        environment.close()
