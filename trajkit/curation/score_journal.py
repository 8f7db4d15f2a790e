"""What a scorer has said so far, on disk, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TextIO

from trajkit.curation.scorer import Identity, Score
from trajkit.errors import StoreError


class Marks(NamedTuple):
    """What a scorer said of one episode."""

    episode_id: str
    scores: list[tuple[int | None, Score]]
    """By step; the step is None where the episode itself was scored."""
    bad: list[tuple[int | None, str]]
    """What could not be scored, and why."""


class Journal:
    """One line per episode that was scored whole. Use as a context manager.

    Args:
        folder: Where journals are.
        digest: Of the store's content.
        identity: Which code scores: other code begins anew.
        per_step: Whether steps are scored.
    """

    def __init__(self, folder: Path, digest: str, identity: Identity, *, per_step: bool) -> None:
        key = json.dumps([digest, identity.spec, identity.sha256, per_step])
        self.path = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.jsonl"
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def marks(self) -> Iterator[Marks]:
        """What is in it, each episode once; a last line that was cut off counts for nothing."""
        seen: set[str] = set()
        try:
            with self.path.open(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    marks = _read(line)
                    if marks is not None and marks.episode_id not in seen:
                        seen.add(marks.episode_id)
                        yield marks
        except FileNotFoundError:
            return

    def add(self, marks: Marks) -> None:
        """Keep what was said of an episode, unless a part of it is bad and is to be tried again.

        Raises:
            StoreError: It cannot be written.
        """
        if marks.bad:
            return
        line = json.dumps([marks.episode_id, marks.scores], ensure_ascii=False, separators=(",", ":"))
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("a", encoding="utf-8")
                self._file.write("\n")  # a line that was cut off ends here
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def remove(self) -> None:
        """Forget everything."""
        self._close()
        self.path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _read(line: str) -> Marks | None:
    try:
        episode_id, scores = json.loads(line)
        return Marks(episode_id, [(step, value) for step, value in scores], [])
    except (ValueError, TypeError):
        return None
