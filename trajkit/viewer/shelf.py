"""The stores that are looked at: each behind a fence of its own, and all their episodes in one index."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from trajkit.errors import RequestError
from trajkit.store.fence import fenced
from trajkit.store.reader import Store, open_store
from trajkit.viewer.asked import Asked
from trajkit.viewer.beginning import read_beginnings
from trajkit.viewer.index import Index
from trajkit.viewer.long_texts import LongTexts
from trajkit.viewer.matches import Matches
from trajkit.viewer.shelved import Shelved

_MEMORY = "2GB"
"""Of the questions to one store; what does not fit waits on disk."""


class Shelf:
    """Some stores, open to be looked at until it is closed. Also a context manager.

    What their episodes begin with is read in a thread of its own, as that reads much; the list does not wait.

    Args:
        paths: The stores, in the order in which the page shows them.

    Raises:
        RequestError: There is none, or one is named twice.
        StoreError: One is not a store that this trajkit can read, or is damaged.
    """

    def __init__(self, paths: Sequence[str | Path]) -> None:
        if not paths:
            raise RequestError("there is nothing to look at", hint="name a store, such as sample:babyai")
        stores = [open_store(path) for path in paths]
        names = _names([store.path for store in stores])
        with contextlib.ExitStack() as opened:
            self.stores: tuple[Shelved, ...] = tuple(
                _shelved(number, name, store, opened)
                for number, (name, store) in enumerate(zip(names, stores, strict=True))
            )
            self.index = Index(self.stores)
            opened.callback(self.index.close)
            self._opened = opened.pop_all()
        self.texts = LongTexts()
        self._matches = Matches(self.index, self.stores)
        self._is_closing = threading.Event()
        self._reading = threading.Thread(
            target=read_beginnings, args=(self.index, self.stores, self._is_closing), daemon=True
        )
        self._reading.start()

    @property
    def is_read(self) -> bool:
        """Whether it is known of every episode what it begins with."""
        return not self._reading.is_alive()

    def wait(self) -> None:
        """Wait until it is."""
        self._reading.join()

    def condition(self, chosen: Asked, *, besides: str | None = None) -> str:
        """SQL over the index for the episodes that are chosen; it holds as long as the index is held.

        Args:
            chosen: What was asked.
            besides: A word of it to leave out.

        Raises:
            QueryError: `where` is not a condition on the episodes of any of the stores.
        """
        parts = [sql for word, sql in chosen.conditions.items() if word != besides]
        tables = [self._matches.searched(chosen.searched)] if chosen.searched else []
        tables += [self._matches.where(chosen.where)] if chosen.where else []
        parts += [f"n IN (SELECT n FROM {table})" for table in tables]
        return " AND ".join(parts) or "true"

    def notes(self, chosen: Asked) -> list[str]:
        """What a reader should know of the episodes that were chosen."""
        return self._matches.notes(chosen.where) if chosen.where else []

    def close(self) -> None:
        """Let go of the files; what still runs ends. A second call does nothing."""
        if self._is_closing.is_set():
            return
        self._is_closing.set()
        for one in self.stores:
            one.connection.interrupt()
        self._reading.join()
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _shelved(number: int, name: str, store: Store, opened: contextlib.ExitStack) -> Shelved:
    connection = fenced(store, memory_limit=_MEMORY)
    opened.callback(connection.close)
    return Shelved(number, name, store, connection)


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest end of each path that no other ends with."""
    for path in paths:
        if paths.count(path) > 1:
            raise RequestError(f"{path} is named twice", hint="once is enough")
    return [_name(path, paths) for path in paths]


def _name(path: Path, paths: Sequence[Path]) -> str:
    for n_parts in range(1, len(path.parts)):
        end = path.parts[-n_parts:]
        if sum(other.parts[-n_parts:] == end for other in paths) == 1:
            return "/".join(end)
    return str(path)
