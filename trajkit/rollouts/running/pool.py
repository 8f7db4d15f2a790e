"""Reuse environments for the next episodes, with a limit on open ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from trajkit.environments.base import Environment


class Pool:
    """Lends environments by task, and creates new ones only where none is free.

    Args:
        make: Creates an environment for a task.
        most: Most open environments; at least as many as are lent at once.
    """

    def __init__(self, make: Callable[[str], Environment], most: int) -> None:
        self._make = make
        self._most = most
        self._idle: dict[str, list[Environment]] = {}
        self.n_open = 0

    @contextlib.contextmanager
    def lent(self, task: str) -> Iterator[Environment]:
        """Lend an environment for the time of a block; it is closed if the block raises."""
        environment = self._take(task)
        try:
            yield environment
        except BaseException:
            self._close(environment)
            raise
        self._idle.setdefault(task, []).append(environment)

    def close(self) -> None:
        """Close the free environments."""
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
