"""Results by the identity of an object: for what many rows have, such as a message of a long conversation."""

from __future__ import annotations

from typing import Generic, TypeVar

ResultT = TypeVar("ResultT")
_MOST = 4096


class Memo(Generic[ResultT]):
    """Results for the latest objects, which must not change. It holds them: no other object gets their id."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, ResultT]] = {}

    def get(self, key: object) -> ResultT | None:
        """Return the result for this very object; None if there is none."""
        found = self._known.get(id(key))
        return None if found is None else found[1]

    def keep(self, key: object, result: ResultT) -> None:
        """Keep a result for an object."""
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[id(key)] = (key, result)
