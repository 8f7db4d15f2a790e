"""The base class of objects that are closed at the end of a block."""

from __future__ import annotations

import abc
from typing import Self


class Closing(abc.ABC):
    """A context manager that calls `close` at its end."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close it. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
