"""The files of a folder in a fixed order, one after another, however many there are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from trajkit.errors import DataError


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
