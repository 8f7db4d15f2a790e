"""An append-only file of JSON lines that stays whole when a process or a disk fails.

A line survives the process when `append` returns, and a failure of the machine if it is urgent. An incomplete
last line is ignored.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from trajkit.errors import StoreError

_BODY = b',"episode":'
"""The separator of a line's head and its episode; inside a JSON text its quotes would be escaped."""


class Line(NamedTuple):
    """One line: a small object, and an episode as text that is parsed only on demand."""

    head: dict[str, Any]
    episode: bytes


class LineFile:
    """The lines of one file.

    Args:
        path: The file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n_lines = 0
        self._size = 0
        self._file: IO[bytes] | None = None

    def load(self, take: Callable[[Mapping[str, Any]], None]) -> None:
        """Read the head of every line.

        Args:
            take: Called with each head; a ValueError, KeyError or TypeError of it means a damaged line.

        Raises:
            StoreError: A line that is not the last is damaged.
        """
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            line = file.readline()
            while line:
                after = file.readline()
                try:
                    take(_split(line, is_last=not after).head)
                except (ValueError, KeyError, TypeError) as error:
                    if not after:
                        return
                    raise self.damaged(self.n_lines + 1) from error
                self._size += len(line)
                self.n_lines += 1
                line = after

    def __iter__(self) -> Iterator[Line]:
        """Yield all lines of the file."""
        with self.path.open("rb") as file:
            for _ in range(self.n_lines):
                yield _split(file.readline())

    def append(self, head: Mapping[str, Any], episode: str | None = None, *, is_urgent: bool = True) -> None:
        """Add a line, and wait until it is on the disk.

        Args:
            head: A small object.
            episode: The episode as JSON; None for other lines.
            is_urgent: Wait until the line is on disk. Otherwise it survives only the process until the next
                urgent line.

        Raises:
            StoreError: It cannot be written; the file is unchanged.
        """
        line = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
        if episode is not None:
            line = line[:-1] + _BODY + episode.encode() + b"}"
        line += b"\n"
        with unwritable(self.path):
            try:
                file = self._opened()
                file.write(line)
                file.flush()
                if is_urgent:
                    os.fsync(file.fileno())
            except OSError:
                self._forget_half_a_line()
                raise
        self._size += len(line)
        self.n_lines += 1

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def damaged(self, number: int) -> StoreError:
        """Return the error for a damaged line, by its number from 1."""
        return StoreError(
            f"{self.path}:{number}: the line is damaged", hint="--new-run plays all episodes again"
        )

    def _opened(self) -> IO[bytes]:
        """Open the file, cut an incomplete last line, and sync its folder entry."""
        if self._file is None:
            self._file = self.path.open("ab")
            self._file.truncate(self._size)
            with contextlib.suppress(OSError):  # not every system can open a folder
                folder = os.open(self.path.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        return self._file

    def _forget_half_a_line(self) -> None:
        with contextlib.suppress(OSError):  # closing tries to write the rest of the buffer
            self.close()
        with contextlib.suppress(OSError):
            os.truncate(self.path, self._size)


def _split(line: bytes, *, is_last: bool = False) -> Line:
    if not line.endswith(b"}\n"):
        raise ValueError("not a whole line")
    start, found, rest = line.removesuffix(b"\n").partition(_BODY)
    head = json.loads(start + b"}" if found else start)
    if found and is_last:  # an incomplete write can only be here
        json.loads(rest[:-1])
    return Line(head, rest[:-1])


@contextlib.contextmanager
def unwritable(path: Path) -> Iterator[None]:
    """Convert disk errors to an error that names the journal."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the journal {path} cannot be written: {error.strerror or error}",
            hint="finished episodes are kept; free some space and run the same command again to resume",
        ) from error
