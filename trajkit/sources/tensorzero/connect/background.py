"""Read a stream in its own thread, so that waiting for it can be interrupted.

A driver may block in C code until the server answers. The caller waits in Python, where Ctrl-C works.
A thread that hangs is left behind and does not keep the process from ending.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")

_AHEAD = 2
"""Items that are read ahead."""
_LOOK_S = 0.2
_CANCEL_S = 1.0
"""How long to wait for the server to accept a cancellation."""


class Told:
    """State that the worker thread reports to its caller: how to interrupt the read."""

    def __init__(self) -> None:
        self.cancel: Callable[[], None] | None = None
        """Asks the server to cancel; never raises, and may be called while another call runs."""


def in_background(read: Callable[[Told], Generator[Item, None, None]], *, silence_s: float) -> Iterator[Item]:
    """Read a stream in a thread, and yield its items.

    Args:
        read: Makes the stream, in that thread; it is also closed there.
        silence_s: Longest time without an item, in seconds.

    Raises:
        TimeoutError: No item came for this long.
    """
    reading = _Reading(read)
    try:
        yield from reading.items(silence_s)
    finally:
        reading.stop()


@contextlib.contextmanager
def ahead(items: Iterator[Item], n_items: int) -> Iterator[Iterator[Item]]:
    """Start to read a stream in a thread before its items are needed, for the time of a block.

    Args:
        items: The stream; read, and closed, in that thread.
        n_items: How many may wait to be taken.
    """

    def read(told: Told) -> Generator[Item, None, None]:
        yield from items

    reading = _Reading(read, n_items)
    try:
        yield reading.items(None)
    finally:
        reading.stop()


class _Reading(Generic[Item]):
    """A stream in a thread; each item is in a tuple of its own, to distinguish it from the end."""

    def __init__(self, read: Callable[[Told], Generator[Item, None, None]], n_items: int = _AHEAD) -> None:
        self._read = read
        self._told = Told()
        self._found: queue.Queue[tuple[Item] | BaseException | None] = queue.Queue(n_items)
        self._is_over = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def items(self, silence_s: float | None) -> Iterator[Item]:
        while True:
            try:
                found = self._found.get(timeout=silence_s)
            except queue.Empty:
                raise TimeoutError(f"no data for {silence_s:g} s") from None
            if found is None:
                self._is_over.set()
                return
            if isinstance(found, BaseException):
                self._is_over.set()
                raise found
            yield found[0]

    def stop(self) -> None:
        """Tell the thread that no more items are needed, if that is so."""
        if self._is_over.is_set():
            return
        self._is_over.set()
        if self._told.cancel is not None:
            asking = threading.Thread(target=self._told.cancel, daemon=True)
            asking.start()
            asking.join(_CANCEL_S)

    def _run(self) -> None:
        try:
            with contextlib.closing(self._read(self._told)) as items:
                for item in items:
                    self._put((item,))
                    if self._is_over.is_set():
                        return
        except BaseException as error:  # noqa: BLE001 -- raised again where it is waited for
            self._put(error)
        else:
            self._put(None)

    def _put(self, found: tuple[Item] | BaseException | None) -> None:
        while not self._is_over.is_set():
            with contextlib.suppress(queue.Full):
                self._found.put(found, timeout=_LOOK_S)
                return
