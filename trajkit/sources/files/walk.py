"""The files of a folder in a fixed order, one after another, however many there are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def files_under(folder: Path) -> Iterator[Path]:
    """Every file, by name, folder by folder; hidden ones and links to folders are passed over."""
    with os.scandir(folder) as entries:
        listed = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    for name, is_folder in listed:
        if name.startswith("."):
            continue
        if is_folder:
            yield from files_under(folder / name)
        elif (folder / name).is_file():
            yield folder / name


def folders_under(folder: Path, *, depth: int) -> Iterator[Path]:
    """The folder and those in it, by name, at most so deep."""
    yield folder
    if depth == 0:
        return
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    for name in names:
        if not name.startswith("."):
            yield from folders_under(folder / name, depth=depth - 1)


def shown_path(path: Path, root: Path) -> str:
    """A file as messages name it: within the folder that was asked for."""
    return path.name if path == root else path.relative_to(root).as_posix()
