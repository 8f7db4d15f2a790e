"""What a recorder keeps while calls run: the journal, the calls under way, a count of what it could not.

Nothing here may break or change a call that is being recorded: `guard` takes whatever goes wrong, counts it
and says it once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import warnings
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple

import trajkit
from trajkit._core.ids import uuid7
from trajkit._core.secrets import hidden
from trajkit.rollouts.recorder.journal import Journal
from trajkit.rollouts.recorder.reading import put_together
from trajkit.rollouts.recorder.secret import may_have_secrets, without_keys, without_secrets
from trajkit.rollouts.recorder.shared import Lane

_APIS = {"/chat/completions": "chat", "/responses": "responses"}
_UTF8 = ("utf-8", "surrogatepass")
_LONGEST_SECRET = 512
"""Bytes of a key, or of what a secret is named by."""
_log = logging.getLogger(__name__)


class RecorderWarning(UserWarning):
    """A recorder could not keep everything."""


class Counts(NamedTuple):
    """What a recorder has seen so far."""

    n_calls: int
    """Calls recorded."""
    n_outside: int
    """Of these, those outside any episode, each an episode of its own."""
    n_failed: int
    """Requests that the service refused or did not answer; each retry is one."""
    n_lost_calls: int
    """Calls that could not be recorded."""
    n_lost_notes: int
    """Rewards, metrics, beginnings and ends of episodes that could not be recorded."""
    n_other: dict[str, int]
    """Requests that are no conversation, by path; they are not recorded."""
    n_hidden: int
    """Requests and answers that had a secret in them, which is hidden in the record."""
    fault: str | None
    """The first thing that went wrong in recording; None when nothing did."""


class Asked(NamedTuple):
    """A request for an answer of a model."""

    api: str
    """`chat` or `responses`."""
    body: bytes
    """What was sent."""
    service: str
    """Scheme, host and port."""
    n_retries: int
    keys: Collection[str]
    """Keys of the client, which no record may hold."""


class Answered(NamedTuple):
    """A call that has come to its end."""

    header: dict[str, Any]
    """What the journal says of it beside the bytes."""
    asked: Asked
    answer: bytes
    is_outside: bool
    """It belongs to no episode."""


class Log:
    """Everything that is kept while calls run. Safe for threads.

    Args:
        store: The store that will be written.

    Raises:
        StoreError: The store exists, or is being recorded, or its journal is in the way.
    """

    def __init__(self, store: Path) -> None:
        self.store = store.absolute()
        facts = {"trajkit_version": trajkit.__version__, "created_at": datetime.now(UTC).isoformat()}
        self._journal: Journal | None = Journal(self.store, facts)
        self._lock = threading.RLock()  # not a plain one: a stream may end while another record is written
        self._pid = os.getpid()
        self._lanes: dict[str, Lane] = {}
        self._metrics: dict[tuple[bool, str], tuple[str, type]] = {}
        self._number = 0
        self._waiting: list[Answered] = []
        self._n_writing = 0
        self._has_warned = False
        self.running: dict[str, Any] = {}
        """Streams that have not ended, by the id of the call."""
        self._n = Counter[str]()
        self._n_other = Counter[str]()
        self._fault: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was recorded at all."""
        return self._journal is not None and self._journal.n_records == 1

    @property
    def is_ours(self) -> bool:
        """Whether this is the process that began the recording, and not a fork of it."""
        return os.getpid() == self._pid

    @property
    def counts(self) -> Counts:
        """What was seen so far."""
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

    def guard(self, what: Literal["call", "note"]) -> _Guard:
        """A block in which no error gets out: it is counted, and said once."""
        return _Guard(self, what)

    def asked(self, request: Any, keys: Collection[str]) -> Asked | None:
        """What a request asks a model; None when it is no conversation."""
        path = request.url.path
        api = next((name for end, name in _APIS.items() if path.endswith(end)), None)
        if api is None or request.method != "POST":
            with self._held():
                kind = path.rpartition("/v1/")[2].strip("/").partition("/")[0]  # what follows may be an id
                self._n_other[f"{request.method} {kind}"] += 1
            return None
        retries = request.headers.get("x-stainless-retry-count", "0")
        return Asked(
            api=api,
            body=request.content,
            service=f"{request.url.scheme}://{request.url.netloc.decode('ascii')}",
            n_retries=int(retries) if retries.isdecimal() else 0,
            keys=keys,
        )

    def next_call(self) -> tuple[str, int]:
        """An id and a number for a call that begins; both are larger than those before."""
        with self._writing():
            self._number += 1
            return uuid7(), self._number

    def write(self, header: dict[str, Any]) -> None:
        """Write a record without bytes."""
        with self._writing() as journal:
            journal.append(header)

    def write_failed(self, episode: str, why: str) -> None:
        """Note a request that was not answered."""
        with self._writing() as journal:
            self._n["failed"] += 1
            journal.append({"kind": "failed", "episode": episode, "why": why})

    def write_call(self, call: Answered) -> None:
        """Write a call: what is new in its request, and its answer."""
        with self._writing() as journal:
            self._waiting.append(call)
            # memory may be tidied up at any moment, and end a stream while this thread writes: it waits
            if self._n_writing == 1:
                self._write_waiting(journal)

    def _write_waiting(self, journal: Journal) -> None:
        while self._waiting:
            call = self._waiting.pop(0)
            episode, keys = call.header["episode"], call.asked.keys
            answer, more = _safe_answer(call)
            # until it is written whole nothing may be compared with it: the lane comes back at the end
            lane = Lane() if call.is_outside else self._lanes.pop(episode, Lane())
            body = call.asked.body
            new = lane.difference(body)
            # what it shares with a body that was kept has been looked at, and a long prompt takes its time
            if may_have_secrets(new.around(body, _LONGEST_SECRET), keys):
                body = without_secrets(body, keys)
                new = lane.difference(body)
            facts = {"base": new.base, "same": [new.n_start, new.n_end], **more}
            self._n["hidden"] += (body != call.asked.body) + (answer != call.answer)
            journal.append({"kind": "call", **call.header, **facts}, new.middle, answer)
            lane.keep(call.header["number"], body, new)
            if not call.is_outside:
                self._lanes[episode] = lane
            self._n["calls"] += 1
            self._n["outside"] += call.is_outside

    def forget(self, episode: str) -> None:
        """An episode has ended: its requests need not be remembered."""
        with self._held():
            self._lanes.pop(episode, None)

    def other_metric(self, name: str, kind: type, *, on_step: bool) -> str | None:
        """Why a metric cannot have this name and kind beside those that are there; None when it can."""
        with self._held():
            before, known = self._metrics.setdefault((on_step, name.lower()), (name, kind))
        if before != name:
            return f"metrics {before!r} and {name!r} differ only by case"
        if known is not kind:
            words: dict[type, str] = {bool: "a yes or no", float: "a number"}
            return f"metric {name!r} was {words[known]} before and is {words[kind]} now"
        return None

    def lost(self, what: str, why: str) -> None:
        """Count what could not be recorded; the first time, say so."""
        with self._held():
            self._n[f"lost {what}"] += 1
            self._fault = self._fault or why
            is_first, self._has_warned = not self._has_warned, True
        if is_first:
            self.warn(
                f"the recorder of {self.store} could not keep a {what}: {why}. The calls themselves go on"
            )

    def warn(self, text: str) -> None:
        """Warn, and never raise: where warnings are errors, the log has it."""
        _log.warning(text)
        with contextlib.suppress(Warning):
            warnings.warn(text, RecorderWarning, stacklevel=2)

    def close(self) -> None:
        """Take no more records; streams that run are kept as far as they came."""
        for call in list(self.running.values()):
            call.ended()
        with self._lock:
            if self._journal is not None:
                with self.guard("call"):
                    self._write_waiting(self._journal)
                self._journal.close()
            self._journal = None

    def refuse_forks(self) -> None:
        """Only the process that began it goes on with a recording.

        Raises:
            ValueError: This is a fork of it.
        """
        if not self.is_ours:
            raise ValueError("the process was forked; make a Recorder in each")

    def _held(self) -> contextlib.AbstractContextManager[Any]:
        """The lock; none in a fork, made perhaps while another thread held it: there nobody lets go of it."""
        return self._lock if self.is_ours else contextlib.nullcontext()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Journal]:
        self.refuse_forks()
        with self._lock:
            if self._journal is None:
                raise ValueError("it is closed")
            self._n_writing += 1
            try:
                yield self._journal
            finally:
                self._n_writing -= 1


def _safe_answer(call: Answered) -> tuple[bytes, dict[str, Any]]:
    """An answer without keys, and what the journal has to say of it more.

    A key may come in pieces: a stream that has one when it is put together is kept put together.
    """
    keys = call.asked.keys
    if call.header["is_stream"] and keys:
        whole = json.dumps(put_together(call.header, call.answer), ensure_ascii=False).encode(*_UTF8)
        if (clean := without_keys(whole, keys)) != whole:
            return clean, {"is_put_together": True}
    return without_keys(call.answer, keys), {}


class _Guard:
    """See `Log.guard`."""

    __slots__ = ("_log", "_what")

    def __init__(self, log: Log, what: str) -> None:
        self._log = log
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self._log.lost(self._what, hidden(f"{type(error).__name__}: {error}"))
        return True
