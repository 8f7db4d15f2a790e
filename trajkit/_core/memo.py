"""Keep results by the identity of objects that many rows share, such as messages of a conversation."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

ResultT = TypeVar("ResultT")
_MOST, _MOST_CHARACTERS = 4096, 16_000_000


class Memo(Generic[ResultT]):
    """Results for the latest objects, which must not change. It keeps them, so that ids are not reused."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, ResultT]] = {}
        self._n_characters = 0

    def get(self, key: object) -> ResultT | None:
        """Return the result for this very object; None if there is none."""
        found = self._known.get(id(key))
        return found[1] if found is not None and found[0] is key else None

    def keep(self, key: object, result: ResultT, n_characters: int) -> None:
        """Keep a result for an object with texts of this many characters."""
        self._n_characters += n_characters
        if len(self._known) >= _MOST or self._n_characters > _MOST_CHARACTERS:
            self._known.clear()
            self._n_characters = n_characters
        self._known[id(key)] = (key, result)


def n_characters(value: Any) -> int:
    """Count the characters of all texts in a JSON value."""
    match value:
        case str():
            return len(value)
        case dict():
            return sum(map(n_characters, value.values()))
        case list():
            return sum(map(n_characters, value))
        case _:
            return 0
