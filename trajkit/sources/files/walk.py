"""The files of a folder in a fixed order, however many there are, and which of them a shard reads."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from trajkit.errors import DataError

_FILES_PER_SHARD = 4


def files_under(folder: Path) -> Iterator[Path]:
    """Every file, by name, folder by folder; hidden ones and links to folders are passed over.

    What is no regular file is among them: it is refused, and counted, by who would open it.
    """
    return (path for path in _entries(folder) if not path.is_dir())


def linked_folders(folder: Path) -> Iterator[Path]:
    """The links to folders below a folder, which no walk follows."""
    return (path for path in _entries(folder) if path.is_dir())


def _entries(folder: Path) -> Iterator[Path]:
    waiting = [(folder, "", True)]
    while waiting:
        parent, name, is_folder = waiting.pop()
        path = parent / name
        if is_folder:
            waiting += [(path, *entry) for entry in reversed(_listed(path))]
        else:
            yield path


def _listed(folder: Path) -> list[tuple[str, bool]]:
    """Names in a folder in order, but for hidden ones, and which of them are folders."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from error
    return sorted(entry for entry in found if not entry[0].startswith("."))


def folders_under(folder: Path, *, depth: int) -> Iterator[Path]:
    """The folder and those in it, by name, at most so deep."""
    yield folder
    if depth == 0:
        return
    for name, is_folder in _listed(folder):
        if is_folder:
            yield from folders_under(folder / name, depth=depth - 1)


def shown_path(path: Path, root: Path) -> str:
    """A file as messages name it: within the folder that was asked for."""
    return path.name if path == root else path.relative_to(root).as_posix()


class Share(NamedTuple):
    """One of several parts of what is imported."""

    number: int
    """Which part, from 1."""
    n: int
    """How many parts there are."""
    by_file: bool
    """Whether files are divided; else the documents in them."""

    def has_file(self, place: str) -> bool:
        """Whether this shard reads a file."""
        return not self.by_file or self.has_whole(place)

    def has(self, place: str) -> bool:
        """Whether this shard takes a document at a place, of a file that it reads."""
        return self.by_file or self.has_whole(place)

    def has_whole(self, place: str) -> bool:
        """Whether this shard takes something that is one document and one file."""
        digest = hashlib.sha256(place.encode("utf-8", "surrogateescape")).digest()
        return int.from_bytes(digest[:8], "big") % self.n == self.number - 1


ALL = Share(1, 1, True)
"""Everything, as one shard."""


def shares(place: str, n: int) -> Iterator[Share]:
    """Yield the shards of what is at a place: its files where it is a folder of many, else its documents."""
    path = Path(place)
    n_files = sum(1 for _ in files_under(path)) if path.is_dir() else 1
    for number in range(1, n + 1):
        yield Share(number, n, n_files >= _FILES_PER_SHARD * n)
