"""Keep the progress of a run on disk, so that a killed run resumes where it stopped.

A run has a folder, named by a hash of everything that decides which episodes are played, with one file of
lines for each time that the run was begun again. An episode is done when its line is completely on disk,
which is written after its feedback was acknowledged. A process that plays the run locks the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import JsonValue

import trajkit
from trajkit._core.lock import locked
from trajkit._core.secrets import Keys
from trajkit._core.settings import STATE_FOLDER
from trajkit.errors import RolloutError, StoreError
from trajkit.rollouts.plan import Job, Plan
from trajkit.rollouts.records.lines import LineFile, unwritable
from trajkit.rollouts.records.summary import Score
from trajkit.schema import Episode

KILLED = "killed"
"""The reason for abandoning an episode that a killed run left unfinished."""

_VERSION = 1


class Abandoned(NamedTuple):
    """An unfinished episode that is not part of the run: its rows in the database must not be learned."""

    episode_id: str
    reason: str
    """Reason in a word or two, for counting."""
    message: str
    """Details of the reason."""


def run_folder(arguments: Mapping[str, JsonValue]) -> Path:
    """Return the folder of a run, by the arguments that decide what it plays."""
    text = json.dumps(arguments, sort_keys=True, ensure_ascii=False)
    return STATE_FOLDER / "runs" / f"rollout-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@contextlib.contextmanager
def open_journal(
    plan: Plan,
    arguments: Mapping[str, JsonValue],
    *,
    begin_anew: bool = False,
    folder: Path | None = None,
) -> Iterator[Journal]:
    """Open the journal of a run for the time of a block; no other process can play the run meanwhile.

    Args:
        plan: The episodes to play; the journal of an earlier run of it has its own `run`.
        arguments: The arguments that decide what is played.
        begin_anew: Begin a new run, even if there are earlier ones.
        folder: The folder of the journal; None for that of the arguments.

    Raises:
        RolloutError: Another process plays this run.
        StoreError: The journal is damaged, or cannot be written.
    """
    folder = folder or run_folder(arguments)
    with contextlib.ExitStack() as stack:
        with unwritable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            holder = stack.enter_context(locked(folder / "lock"))
        if holder is not None:
            raise RolloutError(
                f"{holder} already plays this run; its journal is in {folder}",
                hint="wait for it; to play in parallel, give each process a --shard I/N",
            )
        journal = _latest(folder, plan)
        if journal.is_empty or begin_anew:
            journal = _next(journal, plan, arguments)
        try:
            journal.abandon_open(KILLED, "the run was killed while it was played")
            yield journal
        finally:
            journal.close()


def find_journal(plan: Plan, arguments: Mapping[str, JsonValue]) -> Journal:
    """Read the journal of a run without a lock; it is empty if the run was never begun.

    Raises:
        StoreError: It is damaged.
    """
    return _latest(run_folder(arguments), plan)


def find_journals(folder: Path, plan: Plan) -> Iterator[Journal]:
    """Read the journals in the folder of a shard, oldest first."""
    return (Journal(path, plan) for path in sorted(folder.glob("journal-*.jsonl")))


def _latest(folder: Path, plan: Plan) -> Journal:
    for path in sorted(folder.glob("journal-*.jsonl"), reverse=True):
        if not (journal := Journal(path, plan)).is_empty:  # empty: killed while writing its first line
            return journal
    return Journal(folder / "journal-0001.jsonl", plan)


def _next(before: Journal, plan: Plan, arguments: Mapping[str, JsonValue]) -> Journal:
    """Create a journal for a new run; it keeps the unmarked episodes of the previous one."""
    before.abandon_open(KILLED, "the run was killed while it was played")
    before.close()
    number = int(before.path.stem.rpartition("-")[2]) + (not before.is_empty)
    journal = Journal(before.path.with_name(f"journal-{number:04}.jsonl"), plan)
    journal.begin_run(arguments, before.unmarked)
    return journal


class Journal:
    """The file of one run.

    Args:
        path: The file; it need not exist.
        plan: The episodes to play.

    Raises:
        StoreError: A line in the middle of it is damaged.
    """

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.run = plan.run
        """Identity of the run: that in the file, or else the plan's."""
        self.is_empty = True
        """Whether the journal has no run yet."""
        self.n_done = 0
        self.n_steps = 0
        """Rows of steps in all finished episodes."""
        self.n_hidden = 0
        """Number of keys that are hidden in these rows."""
        self.abandoned: Counter[str] = Counter()
        """Episodes that were abandoned, by reason."""
        self.unmarked: dict[str, Abandoned] = {}
        """Abandoned episodes that are not marked in the database yet, by episode id."""
        self._abandoned: set[str] = set()
        self._plan = plan
        self._done = _Flags()
        self._open: dict[str, Job] = {}
        self._file = LineFile(path)
        self._file.load(self._take)

    # -- reading ---------------------------------------------------------------------------------------------

    def is_done(self, job: Job) -> bool:
        """Check whether an episode is finished and its feedback acknowledged."""
        return self._done[self._plan.position(job)]

    def scores(self) -> Iterator[Score]:
        """Yield the table's values of each finished episode, in the order in which they ended."""
        for line in self._file:
            if done := line.head.get("done"):
                yield Score(*done["score"])

    def finished(self) -> Iterator[tuple[Score, Episode]]:
        """Yield each finished episode with the table's values, in the order in which they ended.

        Raises:
            StoreError: An episode cannot be read.
        """
        for number, line in enumerate(self._file, 1):
            if done := line.head.get("done"):
                try:
                    yield Score(*done["score"]), Episode.model_validate_json(line.episode)
                except ValueError as error:
                    raise self._file.damaged(number) from error

    def episodes(self) -> Iterator[Episode]:
        """Return each finished episode, in the order in which they ended.

        Raises:
            StoreError: An episode cannot be read.
        """
        return (episode for _, episode in self.finished())

    def leave_out(self, other: Journal) -> None:
        """Treat the finished episodes of another journal of the same plan as done, without counting them."""
        self._done.add(other._done)

    # -- writing: each method raises StoreError when the disk fails ------------------------------------------

    def begin_run(self, arguments: Mapping[str, JsonValue], unmarked: Mapping[str, Abandoned]) -> None:
        """Write the head of a new file, and the episodes of the previous file that are still to be marked."""
        head = {"version": _VERSION, "run": self.run, "trajkit_version": trajkit.__version__}
        self._write({"run": {**head, "arguments": dict(arguments)}})
        for one in unmarked.values():
            self._write({"unmarked": one._asdict()})

    def begin(self, job: Job, episode_id: str) -> None:
        """Record an episode before its first request."""
        self._write({"begun": {"episode_id": episode_id, "job": list(job.parts)}}, is_urgent=False)

    def finish(self, job: Job, episode: Episode, score: Score) -> None:
        """Record a finished episode whose feedback was acknowledged."""
        # a service may have repeated the key of its request
        text, n_hidden = Keys().hide(episode.model_dump_json())
        done = {
            "episode_id": episode.episode_id,
            "job": list(job.parts),
            "n": episode.n_steps,
            "score": list(score),
            **({"hidden": n_hidden} if n_hidden else {}),
        }
        self._write({"done": done}, text)

    def abandon(self, episode_id: str, reason: str, message: str) -> None:
        """Record that a begun episode is not part of the run."""
        self._write({"abandoned": Abandoned(episode_id, reason, message)._asdict()})

    def abandon_open(self, reason: str, message: str) -> None:
        """Abandon every episode that has begun and not ended."""
        for episode_id in list(self._open):
            self.abandon(episode_id, reason, message)

    def mark(self, episode_id: str) -> None:
        """Record that an abandoned episode is marked in the database, or has no rows there."""
        self._write({"marked": {"episode_id": episode_id}})

    def absorb(self, shard: Journal) -> Iterator[tuple[Score, str]]:
        """Copy new episodes from the journal of a shard of this run, and yield each finished one.

        Yields:
            The table's values of the episode, and the episode as JSON.
        """
        for line in shard._file:
            match line.head:
                case {"done": done}:
                    if not self.is_done(Job(*done["job"])):
                        text = line.episode.decode()
                        self._write(line.head, text, is_urgent=False)
                        yield Score(*done["score"]), text
                case {"abandoned": {"episode_id": episode_id}}:
                    if episode_id not in self._abandoned:
                        self._write(line.head)
                case {"marked": {"episode_id": episode_id}}:
                    if episode_id in self.unmarked:
                        self.mark(episode_id)

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._file.close()

    def _write(self, head: Mapping[str, Any], episode: str | None = None, *, is_urgent: bool = True) -> None:
        self._file.append(head, episode, is_urgent=is_urgent)
        self._take(head)

    # -- parsing of lines ------------------------------------------------------------------------------------

    def _take(self, head: Mapping[str, Any]) -> None:
        match head:
            case {"run": {"version": int(version), "run": str(run)}}:
                if version > _VERSION:
                    raise StoreError(
                        f"{self.path} is of journal version {version}; this trajkit reads {_VERSION}",
                        hint="pip install -U trajkit",
                    )
                self.run, self.is_empty = run, False
            case {"begun": {"episode_id": episode_id, "job": job}}:
                self._open[episode_id] = Job(*job)
            case {"done": {"episode_id": episode_id, "job": job, "n": n_steps}}:
                self._done.set(self._plan.position(Job(*job)))
                self._open.pop(episode_id, None)
                self.n_done += 1
                self.n_steps += n_steps
                self.n_hidden += head["done"].get("hidden", 0)
            case {"abandoned": abandoned}:
                self._open.pop(abandoned["episode_id"], None)
                self._abandoned.add(abandoned["episode_id"])
                self.unmarked[abandoned["episode_id"]] = Abandoned(**abandoned)
                self.abandoned[abandoned["reason"]] += 1
            case {"unmarked": abandoned}:
                self.unmarked[abandoned["episode_id"]] = Abandoned(**abandoned)
            case {"marked": {"episode_id": episode_id}}:
                self.unmarked.pop(episode_id, None)
            case _:
                raise ValueError(f"no line begins with {next(iter(head), None)!r}")


class _Flags:
    """A set of numbers as bits, with memory only for the range in use."""

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}

    def __getitem__(self, number: int) -> bool:
        return bool(self._bits.get(number >> 10, 0) >> (number & 1023) & 1)

    def add(self, other: _Flags) -> None:
        for place, bits in other._bits.items():
            self._bits[place] = self._bits.get(place, 0) | bits

    def set(self, number: int) -> None:
        self._bits[number >> 10] = self._bits.get(number >> 10, 0) | 1 << (number & 1023)
