"""Read a part of a large place, and report which part.

Lines that are separate documents are taken evenly from the whole file, with their line numbers. Of other
large places the first part is read, because their records belong together.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from trajkit.formats.reading.document import BadDocument
from trajkit.sources.files.documents import LINES, line_document
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.files.importing import found_at, is_url
from trajkit.sources.files.known import KINDS
from trajkit.sources.files.texts import Line, opened
from trajkit.sources.files.walk import files_under
from trajkit.sources.wish import Wish

MOST_BYTES = 10_000_000
"""Maximum bytes to read of a place."""
MOST_SECONDS = 3.0
"""Maximum time of reading."""
_BLOCK = 1 << 20
_PIECE = 1 << 16
"""Maximum bytes per block, in whole lines."""


class Sample:
    """Reads a part of a place, once.

    Args:
        place: A path or URL.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        root = Path(place)
        is_here = not is_url(place)
        self._files = list(files_under(root)) if is_here and root.is_dir() else [root] if is_here else []
        self.n_bytes_of = sum(map(_size, self._files)) if is_here else None
        """Size of the whole; None if unknown."""
        self.n_bytes: int | None = self.n_bytes_of
        """Size of the part that was read; None if unknown."""
        self.how = ""
        """Which part was read; empty for all of it."""

    def read(self, place: str, name: str, wish: Wish) -> Iterator[Found | Unread]:
        """Read the part. `place` is the one that the sample was made for."""
        if self.n_bytes_of is not None and self.n_bytes_of > MOST_BYTES:
            if len(self._files) == 1 and _is_lines(self._files[0]) and name in KINDS:
                yield from self._spread(self._files[0], name)
                return
            if _is_lines(self._files[0]) or len(self._files) > 1:
                yield from self._first(name, wish)
                return
        yield from self._timed(found_at(place, name, wish))

    def _timed(self, found: Iterator[Found | Unread]) -> Iterator[Found | Unread]:
        """Yield at least one document, until the time is over."""
        end = time.monotonic() + MOST_SECONDS
        for number, one in enumerate(found, 1):
            yield one
            if time.monotonic() > end and not self.how:
                self.n_bytes = None
                self.how = f"the first {number:,} documents, which took {MOST_SECONDS:g} s"
                return

    def _spread(self, path: Path, name: str) -> Iterator[Found | Unread]:
        """Yield documents from lines, up to each block's share of the budget."""
        assert self.n_bytes_of is not None
        n_blocks = -(-self.n_bytes_of // _BLOCK)
        budget = max(1, MOST_BYTES // n_blocks)
        every = 1
        if budget < _PIECE:  # lines may be long: prefer fewer blocks, with more of each
            every, budget = -(-_PIECE // budget), _PIECE
        self.n_bytes, self.how = 0, "lines from evenly spread places"
        with path.open("rb") as file:
            number = 1
            for block in range(n_blocks):
                data = file.read(_BLOCK)
                if block % every == 0:
                    yield from self._of_block(data, path.name, name, number, budget, is_first=block == 0)
                number += data.count(b"\n")

    def _of_block(
        self, data: bytes, place: str, name: str, number: int, budget: int, *, is_first: bool
    ) -> Iterator[Found]:
        """Yield the documents of the first whole lines of a block."""
        taken = 0
        for n, line in enumerate(data.split(b"\n")[:-1]):
            if n == 0 and not is_first:
                continue  # the rest of a line
            if taken >= budget:
                return
            if line.strip():
                yield line_document(Line(number + n, line.strip()), place, name)
            taken += len(line) + 1
            self.n_bytes = (self.n_bytes or 0) + len(line) + 1

    def _first(self, name: str, wish: Wish) -> Iterator[Found | Unread]:
        """Yield the documents of the first files, or lines, within the budget, from a copy."""
        root = Path(self._place)
        with tempfile.TemporaryDirectory(prefix="trajkit-") as folder:
            copy = Path(folder) / (root.name or "all")
            left, n_files = MOST_BYTES, 0
            for path in self._files:
                goal = copy if path == root else copy / path.relative_to(root)
                n = _copied(path, goal, left, None if path == root else root)
                n_files += n > 0
                left -= n
                if left <= 0:
                    break
            if left > MOST_BYTES // 2:  # most bytes are in files that cannot be cut, such as a database
                yield from self._timed(found_at(self._place, name, wish))
                return
            self.n_bytes = MOST_BYTES - left
            self.how = "the first lines" if n_files == 1 else f"the first {n_files:,} files"
            yield from self._timed(found_at(str(copy), name, wish))


def _is_lines(path: Path) -> bool:
    return path.suffix.lower() in LINES


def _size(path: Path) -> int:
    """Return the size of a regular file; 0 for anything else, which its reader refuses."""
    return path.stat().st_size if path.is_file() else 0


def _copied(path: Path, goal: Path, most_bytes: int, within: Path | None) -> int:
    """Copy a file, or its first lines if it is too large; return the bytes used of the budget."""
    n = _size(path)
    is_whole = n <= most_bytes
    if not n or not (is_whole or _is_lines(path)):
        return 0
    try:
        with opened(path, within) as file:
            data = file.read(most_bytes)
    except BadDocument:
        return 0
    goal.parent.mkdir(parents=True, exist_ok=True)
    goal.write_bytes(data if is_whole else data[: data.rfind(b"\n") + 1])
    return n if is_whole else most_bytes
