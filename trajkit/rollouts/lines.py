"""An append-only file of JSON lines that stays whole when a process or a disk fails.

A line survives the process when `append` returns, and the machine as well if it is urgent. An incomplete last
line is ignored.
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
        """Read the head of every line there is.

        Args:
            take: Called with each; what it raises (ValueError, KeyError, TypeError) means a damaged line.

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
        """The lines that were there or were added."""
        with self.path.open("rb") as file:
            for _ in range(self.n_lines):
                yield _split(file.readline())

    def append(self, head: Mapping[str, Any], episode: str | None = None, *, is_urgent: bool = True) -> None:
        """Add a line, and wait until it is on the disk.

        Args:
            head: A small object.
            episode: As JSON; None when the line is about something else.
            is_urgent: Else it is handed to the system, which survives the process, and is on the disk with
                the next line that is urgent.

        Raises:
            StoreError: It cannot be written; the file is as it was.
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
        """The error for a line, by its number from 1."""
        return StoreError(
            f"{self.path}:{number}: the line is damaged", hint="--new-run plays everything anew"
        )

    def _opened(self) -> IO[bytes]:
        """The file, cut to what is whole in it, and its name on the disk too."""
        if self._file is None:
            self._file = self.path.open("ab")
            self._file.truncate(self._size)
            with contextlib.suppress(OSError):  # not every system lets a folder be opened
                folder = os.open(self.path.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        return self._file

    def _forget_half_a_line(self) -> None:
        with contextlib.suppress(OSError):  # closing writes what is left in the buffer, or tries to
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
    """Turn the errors of a disk into one of ours that names the journal."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the journal {path} cannot be written: {error.strerror or error}",
            hint="what was finished is kept; when there is room, the same command goes on where this stopped",
        ) from error
