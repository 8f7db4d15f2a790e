"""Count and store the scores of episodes, and keep them in a journal so that a run can continue."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

import pyarrow as pa

from trajkit._core.files import unwritable
from trajkit.curation.derive import Derivation
from trajkit.curation.scores.scorer import Identity, Score
from trajkit.errors import DataError, NothingMatched
from trajkit.schema import Episode, FeedbackKind
from trajkit.store.dataset import Dataset

_FIELDS: dict[str, pa.DataType] = {
    "episode_id": pa.string(),
    "step_index": pa.int64(),
    "value": pa.float64(),
}
_SCHEMA = pa.schema(_FIELDS)
_LISTED = 20
_ROWS_AT_ONCE = 10_000
_FAILURES_IN_A_ROW = 20
"""This many episodes in a row that cannot be scored mean that none can."""


class Bad(NamedTuple):
    """A failure to score."""

    episode_id: str
    step_index: int | None
    """None if the episode itself was scored."""
    reason: str

    def __str__(self) -> str:
        step = "" if self.step_index is None else f" step {self.step_index}"
        return f"episode {self.episode_id}{step}: the scorer {self.reason}"


class Scores:
    """The scores so far: counted here, and inserted into the table `scored` of the derivation's connection.

    Args:
        derivation: The store.
        spec: The scorer, for messages.
        max_bad: Maximum number of failures.
    """

    def __init__(self, derivation: Derivation, spec: str, max_bad: int) -> None:
        self._derivation = derivation
        self._spec = spec
        self._max_bad = max_bad
        self.n_episodes = derivation.store.manifest.counts.n_episodes
        """Number of episodes."""
        self.seen: set[str] = set()
        """Ids of the episodes that were scored."""
        self._waiting: list[tuple[str, int | None, float]] = []
        self._examples: dict[FeedbackKind, str] = {}
        self._in_a_row = 0
        self.reasons: Counter[str] = Counter()
        self.n_scored = self.n_none = self.n_bad = 0
        self.bad: list[Bad] = []
        derivation.connection.execute(
            "CREATE TEMP TABLE scored (episode_id VARCHAR, step_index BIGINT, value DOUBLE)"
        )

    def rest(self) -> Iterator[Episode]:
        """Yield the episodes still to be scored, by id, read lazily."""
        resumed = frozenset(self.seen)
        if len(resumed) < self.n_episodes:
            for episode in Dataset(self._derivation.store):
                if episode.episode_id not in resumed:
                    yield episode

    def add(self, marks: Marks) -> None:
        """Add the scores of one episode.

        Raises:
            DataError: Too many episodes in a row failed.
        """
        self.seen.add(marks.episode_id)
        for step_index, value in marks.scores:
            if value is None:
                self.n_none += 1
                continue
            self.n_scored += 1
            kind = FeedbackKind.BOOLEAN if isinstance(value, bool) else FeedbackKind.FLOAT
            self._examples.setdefault(kind, f"{value} for episode {marks.episode_id}")
            self._waiting.append((marks.episode_id, step_index, float(value)))
        if len(self._waiting) >= _ROWS_AT_ONCE:
            self._flush()
        for step_index, reason in marks.bad:
            self.n_bad += 1
            self.reasons[reason] += 1
            # an episode has marks of steps, or one of its own: None is not compared with a step
            self.bad = sorted([*self.bad, Bad(marks.episode_id, step_index, reason)])[:_LISTED]
        self._in_a_row = self._in_a_row + 1 if marks.bad and not marks.scores else 0
        if self._in_a_row >= _FAILURES_IN_A_ROW and self.n_bad > self._max_bad:
            raise self._too_bad(f"{self._in_a_row} episodes in a row")

    def settle(self) -> None:
        """Insert the last scores.

        Raises:
            DataError: Too many failed.
        """
        self._flush()
        if self.n_bad > self._max_bad:
            raise self._too_bad(f"{self.n_bad:,} of {self.n_bad + self.n_none + self.n_scored:,}")

    def kind(self) -> FeedbackKind:
        """Return whether the scores are numbers or booleans.

        Raises:
            DataError: They are both.
            NothingMatched: There is no score.
        """
        if len(self._examples) > 1:
            examples = " and ".join(self._examples[kind] for kind in sorted(self._examples))
            raise DataError(
                f"{self._spec} returns numbers and booleans: {examples}", hint="a metric is one or the other"
            )
        if not self._examples:
            raise NothingMatched(
                f"{self._spec} scored nothing in {self._derivation.store.path}",
                hint=f"it returned None {self.n_none:,} times and failed {self.n_bad:,} times",
            )
        return next(iter(self._examples))

    def mean(self) -> float | None:
        """Return the mean of the scores."""
        run = self._derivation.connection.execute
        ((n,),) = run("SELECT count(*) FROM scored").fetchall()
        found = run("SELECT value, count(*) FROM scored GROUP BY value")
        batches = iter(lambda: found.fetchmany(_ROWS_AT_ONCE), [])
        return math.fsum(value * times for rows in batches for value, times in rows) / n if n else None

    def _flush(self) -> None:
        if self._waiting:
            columns = [list(column) for column in zip(*self._waiting, strict=True)]
            rows = pa.table(dict(zip(_SCHEMA.names, columns, strict=True)), schema=_SCHEMA)
            self._derivation.connection.register("new_scored", rows)
            self._derivation.connection.execute("INSERT INTO scored FROM new_scored")
            self._derivation.connection.unregister("new_scored")
            self._waiting.clear()

    def _too_bad(self, how_many: str) -> DataError:
        return DataError(
            f"{self._spec} failed on {how_many}, first on {self.bad[0]}",
            hint="correct it and run again: scores are kept; or accept this many failures with --max-bad",
        )


class Marks(NamedTuple):
    """Scores and failures of one episode."""

    episode_id: str
    scores: list[tuple[int | None, Score]]
    """By step; the step is None if the episode itself was scored."""
    bad: list[tuple[int | None, str]]
    """Steps that could not be scored, with the reason."""


class Journal:
    """A file with a line for each completely scored episode. To be closed.

    Args:
        folder: Folder of the journals.
        digest: Digest of the store's content.
        identity: Identity of the scorer: another one gets another journal.
        per_step: Whether steps are scored.
    """

    def __init__(self, folder: Path, digest: str, identity: Identity, *, per_step: bool) -> None:
        key = json.dumps([digest, identity.spec, identity.sha256, per_step])
        self.path = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.jsonl"
        self._file: TextIO | None = None

    def marks(self) -> Iterator[Marks]:
        """Yield its marks, each episode once; an incomplete last line is skipped."""
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
        """Append the marks of an episode, unless some of it failed and must be tried again.

        Raises:
            StoreError: The journal cannot be written.
        """
        if marks.bad:
            return
        line = json.dumps([marks.episode_id, marks.scores], ensure_ascii=False, separators=(",", ":"))
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("a", encoding="utf-8")
                self._file.write("\n")  # ends an incomplete last line
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            raise unwritable(self.path, error) from error

    def remove(self) -> None:
        """Remove the journal."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; another mark opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _read(line: str) -> Marks | None:
    try:
        episode_id, scores = json.loads(line)
        return Marks(episode_id, [(step, value) for step, value in scores], [])
    except (ValueError, TypeError):
        return None
