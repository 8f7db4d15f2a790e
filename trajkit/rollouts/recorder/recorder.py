"""`trajkit.Recorder`: record the calls of any OpenAI client in a user's own code as a store."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from pydantic import JsonValue

import trajkit
from trajkit._core.files import refuse_existing
from trajkit.errors import RequestError, TrajkitError
from trajkit.rollouts.recorder.assemble import Tally, episodes, with_notes
from trajkit.rollouts.recorder.client import recorded, refuse_others
from trajkit.rollouts.recorder.episode import RecordedEpisode, current_scope
from trajkit.rollouts.recorder.journal import JournalReader, abandoned, journal_path, late_path
from trajkit.rollouts.recorder.log import Counts, Log
from trajkit.rollouts.recorder.notes import Notes
from trajkit.rollouts.recorder.values import seed_number, text
from trajkit.schema import Episode, LineageEntry, Manifest, Purpose
from trajkit.schema.manifest import Left
from trajkit.store.dataset import open_dataset
from trajkit.store.writer import write_episodes

_NOTHING = Counts(0, 0, 0, 0, 0, {}, 0, None)
ClientT = TypeVar("ClientT")
AnyClientT = TypeVar("AnyClientT")


class Recorder(Generic[ClientT]):
    """Records the calls of an OpenAI client and writes them as a store.

    Each call is in `STORE.journal` before it returns; `close`, or the end of a `with` block,
    writes the store from the journal and removes the journal. With `{date}` in its name there is a store per
    day (UTC): an episode stays in that of the day on which it was created, and a past day's store is written
    when its last episode has ended. Notes on an episode of a written store go to `STORE.late`, and `recover`
    adds them. A failure of recording never reaches the call: it is
    counted, and a `RecorderWarning` reports it once and at the end.

    Args:
        client: An `OpenAI` or `AsyncOpenAI`, or an instance of a subclass. It is not
            changed; use the attribute `client` for calls.
        store: The folder to write, or one per day: `stores/{date}`.

    Raises:
        StoreError: The store exists, another recorder writes it, or a dead recorder left its journal.
        RequestError: The client is of another kind.
        MissingExtra: The package openai is not installed.

    Example:
        >>> with trajkit.Recorder(OpenAI(), store="stores/mine") as recorder:  # doctest: +SKIP
        ...     with recorder.episode(task="greet", seed=0) as e:
        ...         recorder.client.chat.completions.create(model="m", messages=[...])
        ...         e.reward(1.0)
    """

    def __init__(self, client: ClientT, store: str | Path) -> None:
        refuse_others(client)
        self._closing = threading.Lock()
        self._manifest: Manifest | None = None
        self._writers: list[threading.Thread] = []
        self._waiting: list[tuple[Path, Counts]] = []
        self._told = _NOTHING
        self._log = Log(Path(store).expanduser().absolute(), self._write_day)
        self.client: ClientT = recorded(client, self._log)
        """The recorded client: of the same class, with the same settings and connections."""
        atexit.register(self._at_exit)

    def wrap(self, client: AnyClientT) -> AnyClientT:
        """Return another client, recorded into the same store.

        Raises:
            RequestError: The client is of another kind.
        """
        return recorded(client, self._log)

    def episode(
        self,
        *,
        task: str | None = None,
        seed: int | None = None,
        env_id: str | None = None,
        purpose: str = "unknown",
        tags: Mapping[str, str] | None = None,
        initial_state_hash: str | None = None,
    ) -> RecordedEpisode:
        """Create an episode: `with recorder.episode(...) as e:`, also `async with`, also as a decorator.

        Args:
            task: The task within the environment.
            seed: Seed of the environment's initial state.
            env_id: The environment.
            purpose: `train`, `eval` or `unknown`; models never train on `eval` episodes.
            tags: Texts by name.
            initial_state_hash: Hash of the complete initial state, where the environment has one.

        Raises:
            RequestError: A value cannot be recorded.
        """
        if purpose not in list(Purpose):
            raise RequestError(f"there is no purpose {purpose!r}", hint=", ".join(Purpose))
        facts = {
            "task": text(task, "a task"),
            "seed": seed_number(seed),
            "env_id": text(env_id, "an environment"),
            "purpose": str(purpose),
            "tags": {text(name, "a tag"): text(tag, f"tag {name!r}") for name, tag in (tags or {}).items()},
            "initial_state_hash": text(initial_state_hash, "a hash"),
        }
        return RecordedEpisode(self._log, {name: value for name, value in facts.items() if value is not None})

    @property
    def current(self) -> RecordedEpisode | None:
        """The innermost open episode in this context; None outside any."""
        scope = current_scope(self._log)
        return None if scope is None else scope.episode

    @property
    def counts(self) -> Counts:
        """Counts of recorded calls and of failures."""
        return self._log.counts

    def close(self) -> Manifest:
        """Write the store and remove the journal. A second call does nothing.

        Streams that are not read to their end are kept as far as they were received; open episodes end as
        `error`. Later calls still work, but are not recorded. With a store per day, the latest is returned.

        Raises:
            StoreError: The store cannot be written. The journal stays, and `recover` can write the store.
        """
        with self._closing:
            if self._manifest is None or self._waiting:
                atexit.unregister(self._at_exit)
                self._waiting += [(store, self._news()) for store in self._log.close()]
                for writer in self._writers:
                    writer.join()
                while self._waiting:
                    manifest = self._written(*self._waiting[-1])
                    self._manifest = self._manifest or manifest
                    self._waiting.pop()
            assert self._manifest is not None
            return self._manifest

    def _written(self, store: Path, counts: Counts) -> Manifest:
        manifest, tally = _write(store, counts)
        journal_path(store).unlink()
        if missing := _missing(counts, tally):
            self._log.warn(f"{store} is written, but incomplete: {missing}")
        return manifest

    def _news(self) -> Counts:
        """Return the counts since the last store."""
        before, now = self._told, self._log.counts
        self._told = now
        names = ("n_lost_calls", "n_lost_notes", "n_hidden")
        return now._replace(**{name: getattr(now, name) - getattr(before, name) for name in names})

    def _write_day(self, store: Path) -> None:
        """Write the store of a past day while calls continue."""
        counts = self._news()

        def write() -> None:
            try:
                self._written(store, counts)
            except (TrajkitError, OSError, RuntimeError) as error:  # an ending program cannot start threads
                self._waiting.insert(0, (store, counts))
                self._log.warn(f"{store} could not be written yet: {error}")

        writer = threading.Thread(target=write, name=f"trajkit-{store.name}")
        try:
            writer.start()
        except RuntimeError:  # the program is ending
            self._waiting.insert(0, (store, counts))
        else:
            self._writers = [*(each for each in self._writers if each.is_alive()), writer]

    @staticmethod
    def recover(store: str | Path, *, so_far: str | Path | None = None) -> Manifest:
        """Write the store of a recorder that was not closed, from its journal.

        Args:
            store: The store of the recorder.
            so_far: Write the finished episodes to this store instead, and leave the journal unchanged.
                The recorder may still be running, in this process or another one. If `store` is already
                written, this writes all of it with the later notes on its episodes.

        Raises:
            StoreError: There is no such journal, there are no notes on a written store, the store to
                write exists, or the journal is still being written and `so_far` names no store.
        """
        path = Path(store).expanduser().absolute()
        if so_far is not None and path.exists():
            return _with_late(path, Path(so_far).expanduser().absolute())
        if so_far is not None:
            manifest, _ = _write(Path(so_far).expanduser().absolute(), None, journal_path(path), is_live=True)
            return manifest
        refuse_existing(path)
        with abandoned(path):
            manifest, _ = _write(path, None)
        journal_path(path).unlink()
        return manifest

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except (TrajkitError, OSError) as second:  # the first error must stay visible
            self._log.warn(f"{self._log.store} could not be written: {second}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def _at_exit(self) -> None:
        """Write the stores when the process ends without a call of `close`."""
        if not self._log.is_ours:
            return
        is_empty = self._log.is_empty
        failed = [store for store, _ in self._waiting]
        for store in [*failed, *self._log.close()]:
            if is_empty and store not in failed:
                journal_path(store).unlink(missing_ok=True)
            else:
                self._end(store)

    def _end(self, store: Path) -> None:
        outcome = "its store was written when the program ended"
        if not _recover_elsewhere(store):
            outcome = f"trajkit.Recorder.recover({str(store)!r}) writes its store from {journal_path(store)}"
        if missing := _missing(self._log.counts, Tally()):
            outcome += f". The recording is incomplete: {missing}"
        self._log.warn(f"the recorder of {store} was not closed: {outcome}")


def _recover_elsewhere(store: Path) -> bool:
    """Write the store in a new process: writing needs threads, which an ending process cannot start."""
    if not sys.executable or getattr(sys, "frozen", False):  # a frozen program would run itself again
        return False
    code = "import sys, trajkit; trajkit.Recorder.recover(sys.argv[1])"
    home = str(Path(trajkit.__file__).parents[1])
    paths = os.pathsep.join(path for path in (home, os.environ.get("PYTHONPATH")) if path)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(store)],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0


def _write(
    store: Path, counts: Counts | None, journal: Path | None = None, *, is_live: bool = False
) -> tuple[Manifest, Tally]:
    """Write the store of a journal: its own, unless another one is given.

    Raises:
        StoreError: The store cannot be written; the journal stays.
    """
    path = journal or journal_path(store)
    tally = Tally()
    source: dict[str, JsonValue] = {"kind": "recorder"}
    lineage: list[LineageEntry] = []

    def told() -> Iterator[Episode]:
        yield from episodes(path, tally, only_ended=is_live)
        # the writer reads these after the last episode
        source["services"] = list[JsonValue](sorted(tally.services))
        lineage.append(_entry(tally, counts))

    try:
        manifest = write_episodes(store, told(), kind="recorder", source=source, lineage=lineage)
    except TrajkitError as error:
        if is_live:
            raise
        raise type(error)(
            error.message,
            hint=f"{path} has the recording: trajkit.Recorder.recover({str(store)!r}) writes it",
        ) from error
    return manifest, tally


def _with_late(store: Path, goal: Path) -> Manifest:
    """Write the episodes of a store with their later notes to another store.

    Raises:
        StoreError: There are no notes, or a file cannot be read or written.
    """
    notes: dict[str, Notes] = {}
    n_notes = 0
    with JournalReader(late_path(store)) as reader:
        for _, header in reader.places():
            episode_id = header["episode"]
            notes.setdefault(episode_id, Notes(episode_id)).take(header)
            n_notes += 1
    dataset = open_dataset(store)
    manifest = dataset.store.manifest
    lineage = list(manifest.lineage)

    def told() -> Iterator[Episode]:
        n_taken = 0
        for episode in dataset:
            if (mine := notes.get(episode.episode_id)) is None:
                yield episode
                continue
            yield with_notes(episode, mine)
            n_taken += mine.n_taken - mine.n_lost
        # the writer reads this after the last episode
        lineage.append(_feedback_entry(manifest, n_notes=n_notes, n_taken=n_taken))

    return write_episodes(goal, told(), kind="recorder", source=manifest.source, lineage=lineage)


def _feedback_entry(manifest: Manifest, *, n_notes: int, n_taken: int) -> LineageEntry:
    counts = manifest.counts
    return LineageEntry(
        verb="feedback",
        arguments={"n_notes": n_notes, "n_of_no_step": n_notes - n_taken},
        parent_digest=manifest.digest,
        n_episodes_in=counts.n_episodes,
        n_episodes_out=counts.n_episodes,
        n_steps_in=counts.n_steps,
        n_steps_out=counts.n_steps,
        done_at=datetime.now(UTC),
        trajkit_version=trajkit.__version__,
    )


def _entry(tally: Tally, counts: Counts | None) -> LineageEntry:
    n_by_reason = {
        "request failed": tally.n_failed,
        "answered in the background": tally.n_in_background,
        "could not be recorded": counts.n_lost_calls if counts else 0,
    }
    left = tuple(Left(reason=reason, n_steps=n) for reason, n in n_by_reason.items() if n)
    if tally.n_open:
        left += (Left(reason="still open", n_episodes=tally.n_open),)
    if tally.n_bytes_unread:
        left += (Left(reason="half written when the process ended"),)  # a call, or a note
    return LineageEntry(
        verb="record",
        arguments={"n_calls_with_hidden": counts.n_hidden} if counts and counts.n_hidden else {},
        n_episodes_in=tally.n_episodes + tally.n_open,
        n_episodes_out=tally.n_episodes,
        n_steps_in=tally.n_steps + sum(one.n_steps for one in left),
        n_steps_out=tally.n_steps,
        left=left,
        masked=tuple(Left(reason=reason, n_steps=n) for reason, n in sorted(tally.n_masked.items())),
        done_at=datetime.now(UTC),
        trajkit_version=trajkit.__version__,
    )


def _missing(counts: Counts, tally: Tally) -> str:
    """Return what the store lacks, in words; "" when nothing is missing."""
    parts = {
        "calls": counts.n_lost_calls,
        "rewards, metrics and the like": counts.n_lost_notes + tally.n_notes_lost,
        "answers in the background": tally.n_in_background,
    }
    lost = ", ".join(f"{n} {what}" for what, n in parts.items() if n)
    return f"{lost} ({counts.fault})" if lost and counts.fault else lost
