"""Keep the state of a recorder: its journals, the running calls, and a count of failures.

No failure here may break or change a recorded call: `guard` catches every exception, counts it, and warns
once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import logging
import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import trajkit
from trajkit._core.ids import time_of, uuid7
from trajkit._core.secrets import Keys, hidden
from trajkit.errors import StoreError
from trajkit.rollouts.recorder.calls.reading import put_together
from trajkit.rollouts.recorder.journal import Journal, append_late, journal_path
from trajkit.rollouts.recorder.secret import may_have_secrets, without_keys, without_secrets
from trajkit.rollouts.recorder.shared import Lane

_APIS = {"/chat/completions": "chat", "/responses": "responses"}
_DATE = "{date}"
"""Placeholder in a store's name: each day, in UTC, gets its own store."""
_UTF8 = ("utf-8", "surrogatepass")
_LONGEST_SECRET = 512
"""Maximum bytes of a key, or of a secret's name."""
_log = logging.getLogger(__name__)


class RecorderWarning(UserWarning):
    """A recorder could not record everything."""


class Counts(NamedTuple):
    """The counts of a recorder."""

    n_calls: int
    """Recorded calls."""
    n_outside: int
    """Recorded calls outside any episode, each of which is a separate episode."""
    n_failed: int
    """Requests that the service refused or did not answer; each retry counts."""
    n_lost_calls: int
    """Calls that could not be recorded."""
    n_lost_notes: int
    """Rewards, metrics, beginnings and ends of episodes that could not be recorded."""
    n_other: dict[str, int]
    """Other requests than conversations, by path; they are not recorded."""
    n_hidden: int
    """Requests and answers with a secret, which is hidden in the record."""
    fault: str | None
    """The first failure of recording; None when there is none."""


class Asked(NamedTuple):
    """A request to a model."""

    api: str
    """`chat` or `responses`."""
    body: bytes
    """Body of the request."""
    service: str
    """Scheme, host and port."""
    n_retries: int
    keys: Keys
    """Keys that must not be recorded: those of the client and of the environment."""


class Answered(NamedTuple):
    """A finished call."""

    header: dict[str, Any]
    """Facts for the journal besides the bytes."""
    asked: Asked
    answer: bytes
    is_outside: bool
    """Whether it belongs to no episode."""


@dataclasses.dataclass(eq=False)
class _Volume:
    """One store while calls are recorded for it."""

    store: Path
    journal: Journal | None
    """None after it was closed."""
    open: set[str] = dataclasses.field(default_factory=set)
    """Episodes that have not ended."""
    begun: set[str] = dataclasses.field(default_factory=set)
    """Episodes that began here although the day has an earlier store; usually few."""


class Log:
    """The journals and running calls of a recorder. Thread-safe.

    An episode belongs to the day of its id, which contains the time of its creation in UTC.

    Args:
        store: The store to write, or one per day where its name has `{date}`.
        on_day_over: Called with each store whose day is over and whose episodes have ended.

    Raises:
        StoreError: The store exists, or is being recorded, or an old journal is in its place.
    """

    def __init__(self, store: Path, on_day_over: Callable[[Path], None]) -> None:
        self.store = store.absolute()
        self.rotates = _DATE in store.name
        """Whether each day has its own store."""
        self._on_day_over = on_day_over
        self._volumes: dict[str, list[_Volume]] = {}
        self._is_closed = False
        self._volume(uuid7())
        self._lock = threading.RLock()  # reentrant: a stream may end while another record is written
        self._pid = os.getpid()
        self._lanes: dict[str, Lane] = {}
        self._metrics: dict[tuple[bool, str], tuple[str, type]] = {}
        self._number = 0
        self._waiting: list[Answered] = []
        self._n_writing = 0
        self._has_warned = False
        self.running: dict[str, Any] = {}
        """Streams that have not ended, by the id of their call."""
        self._n = Counter[str]()
        self._n_other = Counter[str]()
        self._fault: str | None = None

    @property
    def recording(self) -> list[Path]:
        """The stores with recorded calls; if there are none, the store of the latest day."""
        held = [volume for each in self._volumes.values() for volume in each if volume.journal is not None]
        return [one.store for one in [each for each in held if not _is_empty(each)] or held[-1:]]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was recorded."""
        return all(_is_empty(volume) for each in self._volumes.values() for volume in each)

    @property
    def is_ours(self) -> bool:
        """Whether this process began the recording, and is not a fork of it."""
        return os.getpid() == self._pid

    @property
    def counts(self) -> Counts:
        """The counts so far."""
        n = self._n
        return Counts(
            n["calls"],
            n["outside"],
            n["failed"],
            n["lost call"],
            n["lost note"],
            dict(sorted(self._n_other.items())),
            n["hidden"],
            self._fault,
        )

    @contextlib.contextmanager
    def guard(self, what: Literal["call", "note"]) -> Iterator[None]:
        """Catch all errors of a block, count them, and warn once."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- no failure to record may reach the call
            self.lost(what, hidden(f"{type(error).__name__}: {error}"))

    def asked(self, request: Any, keys: Collection[str]) -> Asked | None:
        """Return the request to a model; None when it is not a conversation."""
        path = request.url.path
        api = next((name for end, name in _APIS.items() if path.endswith(end)), None)
        if api is None or request.method != "POST":
            with self._held():
                kind = path.rpartition("/v1/")[2].strip("/").partition("/")[0]  # the rest may contain an id
                self._n_other[f"{request.method} {kind}"] += 1
            return None
        retries = request.headers.get("x-stainless-retry-count", "0")
        return Asked(
            api=api,
            body=request.content,
            service=f"{request.url.scheme}://{request.url.netloc.decode('ascii')}",
            n_retries=int(retries) if retries.isdecimal() else 0,
            keys=Keys(*keys),
        )

    def next_call(self) -> tuple[str, int]:
        """Return an id and a number for a new call; both are larger than the earlier ones."""
        self.refuse_forks()
        with self._lock:
            self._refuse_closed()
            self._number += 1
            return uuid7(), self._number

    def write(self, header: dict[str, Any]) -> None:
        """Write a record without bytes. A note on an episode of a written store goes to its late journal."""
        episode, kind = header["episode"], header["kind"]
        if kind == "note":
            self.refuse_forks()
            with self._lock:
                volume = self._volume_of_note(episode)
                if volume.journal is None:
                    append_late(volume.store, _facts(), header)
                    return
        with self._writing(episode) as volume:
            self._journal(volume).append(header)
            if kind == "begin":
                volume.open.add(episode)
                if volume is not self._volumes[self._day(episode)][0]:
                    volume.begun.add(episode)
            elif kind == "end":
                volume.open.discard(episode)

    def write_failed(self, episode: str, why: str) -> None:
        """Record a request that was not answered."""
        with self._writing(episode) as volume:
            self._n["failed"] += 1
            self._journal(volume).append({"kind": "failed", "episode": episode, "why": why})

    def write_call(self, call: Answered) -> None:
        """Write a call: the new part of its request, and its answer."""
        with self._writing(call.header["episode"]):
            self._waiting.append(call)
            # garbage collection may end a stream while this thread writes: such a call waits
            if self._n_writing == 1:
                self._write_waiting()

    def _write_waiting(self) -> None:
        while self._waiting:
            call = self._waiting.pop(0)
            episode, keys = call.header["episode"], call.asked.keys
            answer, more = _safe_answer(call)
            # the lane returns only after a complete write, so that no call is compared with a partial one
            lane = Lane() if call.is_outside else self._lanes.pop(episode, Lane())
            body = call.asked.body
            new = lane.difference(body)
            # only the new part is searched for secrets: the shared part was searched, and prompts are long
            if may_have_secrets(new.around(body, _LONGEST_SECRET), keys):
                body = without_secrets(body, keys)
                new = lane.difference(body)
            facts = {"base": new.base, "same": [new.n_start, new.n_end], **more}
            self._n["hidden"] += (body != call.asked.body) + (answer != call.answer)
            journal = self._journal(self._volume(episode))
            journal.append({"kind": "call", **call.header, **facts}, new.middle, answer)
            lane.keep(call.header["number"], body, new)
            if not call.is_outside:
                self._lanes[episode] = lane
            self._n["calls"] += 1
            self._n["outside"] += call.is_outside

    def forget(self, episode: str) -> None:
        """Forget the requests of an episode that has ended."""
        with self._held():
            self._lanes.pop(episode, None)

    def other_metric(self, name: str, kind: type, *, on_step: bool) -> str | None:
        """Return why a metric conflicts with a known one; None when it does not."""
        with self._held():
            before, known = self._metrics.setdefault((on_step, name.lower()), (name, kind))
        if before != name:
            return f"metrics {before!r} and {name!r} differ only by case"
        if known is not kind:
            words: dict[type, str] = {bool: "a boolean", float: "a number"}
            return f"metric {name!r} was {words[known]} before and is {words[kind]} now"
        return None

    def lost(self, what: str, why: str) -> None:
        """Count a failure to record, and warn the first time."""
        with self._held():
            self._n[f"lost {what}"] += 1
            self._fault = self._fault or why
            is_first, self._has_warned = not self._has_warned, True
        if is_first:
            self.warn(f"the recorder of {self.store} could not record a {what}: {why}. The calls continue")

    def warn(self, text: str) -> None:
        """Warn without raising: where warnings are errors, only the log has it."""
        _log.warning(text)
        with contextlib.suppress(Warning):
            warnings.warn(text, RecorderWarning, stacklevel=2)

    def close(self) -> list[Path]:
        """Stop recording, keep the received part of running streams, and return the stores to write."""
        for call in list(self.running.values()):
            call.ended()
        with self._lock:
            with self.guard("call"):
                self._write_waiting()
            self._is_closed = True
            for volume in itertools.chain.from_iterable(self._volumes.values()):
                if volume.journal is not None:
                    volume.journal.close()
            stores = self.recording
            for volume in itertools.chain.from_iterable(self._volumes.values()):
                if volume.journal is not None and volume.store not in stores:
                    volume.journal.path.unlink(missing_ok=True)
                volume.journal = None
            return stores

    def refuse_forks(self) -> None:
        """Refuse to record in a forked process.

        Raises:
            ValueError: This process is a fork.
        """
        if not self.is_ours:
            raise ValueError("the process was forked; create a Recorder in each process")

    def _held(self) -> contextlib.AbstractContextManager[Any]:
        """Return the lock; none in a fork, where another thread may have held it at the time of the fork."""
        return self._lock if self.is_ours else contextlib.nullcontext()

    @contextlib.contextmanager
    def _writing(self, episode: str) -> Iterator[_Volume]:
        self.refuse_forks()
        with self._lock:
            self._refuse_closed()
            self._n_writing += 1
            try:
                yield self._volume(episode)
            finally:
                self._n_writing -= 1
            if self.rotates and not self._n_writing:
                self._end_days()

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise ValueError("the recorder is closed")

    def _day(self, episode: str) -> str:
        return f"{time_of(episode):%Y-%m-%d}" if self.rotates else ""

    def _volume(self, episode: str) -> _Volume:
        """Return the volume for records of an episode; a day whose store is written gets another volume."""
        day = self._day(episode)
        volumes = self._volumes.setdefault(day, [])
        if not volumes or volumes[-1].journal is None:
            volumes.append(self._opened(day))
        return volumes[-1]

    def _opened(self, day: str) -> _Volume:
        """Open a new volume; if the day already has a store, the new one gets a numbered name."""
        self._refuse_closed()
        if not self.rotates:
            return _Volume(self.store, Journal(self.store, _facts()))
        for number in itertools.count(1):
            name = self.store.name.replace(_DATE, day) + (f"-{number}" if number > 1 else "")
            store = self.store.with_name(name)
            try:
                return _Volume(store, Journal(store, _facts()))
            except StoreError:
                if not store.exists() and not journal_path(store).exists():
                    raise
        raise AssertionError

    def _volume_of_note(self, episode: str) -> _Volume:
        """Return the volume in which an episode began."""
        volumes = self._volumes.get(self._day(episode)) or [self._volume(episode)]
        return next((each for each in reversed(volumes[1:]) if episode in each.begun), volumes[0])

    def _journal(self, volume: _Volume) -> Journal:
        assert volume.journal is not None
        return volume.journal

    def _end_days(self) -> None:
        """Hand over the stores of past days that have no open episode and no running stream."""
        today = self._day(uuid7())
        running = {self._day(call.episode_id) for call in self.running.values()}
        for day, volumes in self._volumes.items():
            volume = volumes[-1]
            if day >= today or day in running or volume.open or volume.journal is None:
                continue
            volume.journal.close()
            if _is_empty(volume):
                volume.journal.path.unlink(missing_ok=True)
            else:
                self._on_day_over(volume.store)
            volume.journal = None


def _facts() -> dict[str, Any]:
    return {"trajkit_version": trajkit.__version__, "created_at": datetime.now(UTC).isoformat()}


def _is_empty(volume: _Volume) -> bool:
    return volume.journal is None or volume.journal.n_records == 1


def _safe_answer(call: Answered) -> tuple[bytes, dict[str, Any]]:
    """Remove keys from an answer, and return it with further facts for the journal.

    A key may be split over the chunks of a stream; then the assembled answer is recorded instead.
    """
    keys = call.asked.keys
    if call.header["is_stream"]:
        whole = json.dumps(put_together(call.header, call.answer), ensure_ascii=False).encode(*_UTF8)
        if (clean := without_keys(whole, keys)) != whole:
            return clean, {"is_put_together": True}
    return without_keys(call.answer, keys), {}
