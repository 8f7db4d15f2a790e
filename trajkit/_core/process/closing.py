"""The base of what is closed at the end of a block."""

from __future__ import annotations

import abc
from typing import Self


class Closing(abc.ABC):
    """A context manager whose end is `close`."""

    @abc.abstractmethod
    def close(self) -> None:
        """End it. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
