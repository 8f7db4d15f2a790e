"""Which documents of an import a shard takes: each document belongs to one shard."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from trajkit.sources.files.walk import files_under

_FILES_PER_SHARD = 4


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
        return not self.by_file or self._has(place)

    def has(self, place: str) -> bool:
        """Whether this shard takes a document at a place, of a file that it reads."""
        return self.by_file or self._has(place)

    def has_whole(self, place: str) -> bool:
        """Whether this shard takes something that is one document and one file."""
        return self._has(place)

    def _has(self, place: str) -> bool:
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
