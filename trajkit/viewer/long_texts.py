"""Long texts that are read in pieces: the last few are kept, so that each is taken out of its store once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

_MOST_CHARACTERS = 200_000_000


class TextKey(NamedTuple):
    """Which text."""

    store: int
    episode_id: str
    step: int | None
    """The step whose row holds it; None for the episode's own."""
    path: str
    """Where in that row."""


class LongTexts:
    """The texts that were read last, as many as fit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[TextKey, str] = OrderedDict()

    def text(self, key: TextKey, read: Callable[[], str]) -> str:
        """A text; it is read when it is not among them. One text is read at a time."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = read()
            self._kept.move_to_end(key)
            while len(self._kept) > 1 and sum(map(len, self._kept.values())) > _MOST_CHARACTERS:
                self._kept.popitem(last=False)
            return self._kept[key]
