"""One digest for whatever a step reads or leaves: a store, a file, a folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

from trajkit._core.files import sha256_file
from trajkit._core.samples import SAMPLE_PREFIX, samples
from trajkit.commands.place import store_path
from trajkit.errors import TrajkitError
from trajkit.store.layout import MANIFEST_NAME

_MODEL_FILE = "config.json"
_BIG = 64_000_000
"""Larger files go by their size and time of change: weights take longer to read than most steps to run."""


def digest_of(path: Path) -> str:
    """The digest of a file's bytes, of a store's content, or of every file below a folder with its name."""
    from trajkit.store.catalog import digest_at

    if path.is_file():
        return _of_file(path)
    if (digest := digest_at(path)) is not None:
        return digest
    total = hashlib.sha256()
    for each in sorted(path.iterdir()) if path.is_dir() else ():  # no device or FIFO is opened
        is_loop = each.is_symlink() and each.is_dir()  # or may be one
        total.update(f"{each.name}\0{each.readlink() if is_loop else digest_of(each)}\n".encode())
    return total.hexdigest()


def input_path(text: str) -> Path | None:
    """What the value of an option names, when it is a store, a model, a file or a folder; else None.

    `@NAME` is the store of that tag. A bare word that is also the name of some folder is taken for a word; of
    `file.py:name` the file counts.
    """
    if text.startswith("@"):
        try:
            text = store_path(text)
        except TrajkitError:  # no tag: some other text
            return None
    if text.startswith(SAMPLE_PREFIX):
        name = text.removeprefix(SAMPLE_PREFIX)
        return samples(MANIFEST_NAME).get(name) or samples(_MODEL_FILE).get(name)
    if not text or "\n" in text or "://" in text:
        return None
    file, has_name, _ = text.rpartition(":")
    path = Path(file if has_name and file.endswith(".py") else text)
    try:
        is_whole = path.is_file() or any((path / name).is_file() for name in (MANIFEST_NAME, _MODEL_FILE))
        return path if is_whole or (len(path.parts) > 1 and path.is_dir()) else None
    except (OSError, ValueError):  # too long for a name, or no name at all
        return None


def _of_file(path: Path) -> str:
    status = path.stat()
    if status.st_size <= _BIG:
        return sha256_file(path)
    return hashlib.sha256(f"{status.st_size} {status.st_mtime_ns}".encode()).hexdigest()
