"""List the files of a folder in a fixed order, and divide them into shards."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from trajkit.errors import DataError

_FILES_PER_SHARD = 4


def files_under(folder: Path) -> Iterator[Path]:
    """Yield every file, by name, folder by folder; hidden ones and links to folders are skipped.

    Files that are not regular are included: their reader refuses and counts them.
    """
    return (path for path in _entries(folder) if not path.is_dir())


def linked_folders(folder: Path) -> Iterator[Path]:
    """Yield the links to folders below a folder, which no walk follows."""
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
    """Return the names in a folder in order, except hidden ones, and whether each is a folder."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from error
    return sorted(entry for entry in found if not entry[0].startswith("."))


def folders_under(folder: Path, *, depth: int) -> Iterator[Path]:
    """Yield the folder and those in it, by name, down to this depth."""
    yield folder
    if depth == 0:
        return
    for name, is_folder in _listed(folder):
        if is_folder:
            yield from folders_under(folder / name, depth=depth - 1)


def shown_path(path: Path, root: Path) -> str:
    """Return the name of a file in messages: its path within the given folder."""
    return path.name if path == root else path.relative_to(root).as_posix()


class Share(NamedTuple):
    """One of several shards of an import."""

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
        """Whether this shard takes a file, or a document, as a whole."""
        digest = hashlib.sha256(place.encode("utf-8", "surrogateescape")).digest()
        return int.from_bytes(digest[:8], "big") % self.n == self.number - 1


ALL = Share(1, 1, True)
"""Everything, as one shard."""


def shares(place: str, n: int) -> Iterator[Share]:
    """Yield the shards of a place: of its files if it is a folder of many, else of its documents."""
    path = Path(place)
    n_files = sum(1 for _ in files_under(path)) if path.is_dir() else 1
    for number in range(1, n + 1):
        yield Share(number, n, n_files >= _FILES_PER_SHARD * n)
