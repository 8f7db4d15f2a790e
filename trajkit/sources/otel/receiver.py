"""Receive traces over the network like a collector: OTLP over HTTP, only from this machine.

https://opentelemetry.io/docs/specs/otlp/#otlphttp. A request is answered when it is on disk as one line
of OTLP/JSON: if the process ends, only unanswered requests are lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import zlib
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from trajkit._core.lazy import need
from trajkit._core.lock import locked
from trajkit._core.output.console import Meter, line, plural, talk
from trajkit._core.output.result import Running
from trajkit._core.process.loop import told_to_end
from trajkit.errors import StoreError
from trajkit.formats.reading.document import BadDocument
from trajkit.schema.base import JsonObject
from trajkit.sources.files.found import MOST_BYTES
from trajkit.sources.files.texts import json_of
from trajkit.sources.otel.otlp import LOGS, TRACES, Row, json_of_protobuf, rows_of
from trajkit.sources.spans.session import SESSION_KEYS
from trajkit.stack.loopback import BadBody, LoopbackHandler, LoopbackServer

PORT = 4318
"""The port that SDKs send to by default."""
FILE = "traces.jsonl"
_KINDS = {"/v1/traces": TRACES, "/v1/logs": LOGS}
_JSON, _PROTOBUF = "application/json", "application/x-protobuf"
_MOST_BYTES = MOST_BYTES // 2
"""Maximum size of a request; its line may be longer."""


class Refused(BadBody):
    """The reason for refusing a request."""


class Receiver(Running):
    """Receives traces until it is closed. Also a context manager. Created by `receive`."""

    def __init__(
        self, folder: Path, server: _Server, opened: contextlib.ExitStack, idle_s: float | None
    ) -> None:
        self.folder = folder
        self._server = server
        self._opened = opened
        self._idle_s = idle_s
        self._is_closed = threading.Event()
        server.start()

    @property
    def url(self) -> str:
        """The endpoint: the value of OTEL_EXPORTER_OTLP_ENDPOINT."""
        return self._server.url

    @property
    def n_spans(self) -> int:
        """Number of received spans."""
        return self._server.intake.n_spans

    @property
    def n_sessions(self) -> int:
        """Number of their sessions; a trace without a session counts as one."""
        return self._server.intake.n_sessions

    def wait(self) -> None:
        """Receive until SIGTERM or Ctrl-C, until requests stop, or until another thread calls `close`."""
        talk("waiting for traces; Ctrl-C ends it")
        intake = self._server.intake
        with Meter() as meter, told_to_end(self._is_closed.set):
            while not self._is_closed.wait(0.2):
                meter.show(f"{plural(intake.n_sessions, 'session')}, spans", intake.n_spans, None)
                if self._idle_s is not None and time.monotonic() - intake.last_at > self._idle_s:
                    break
        self.close()
        talk(f"received {self._counts()}")
        if intake.n_spans:
            talk(f"make a store from them: trajkit import {self.folder} --from otel")

    def close(self) -> None:
        """Answer the current requests, and end. A second call does nothing."""
        self._is_closed.set()
        self._server.close()
        self._opened.close()

    def to_json(self) -> dict[str, Any]:
        """Return the endpoint, the folder, and the id of the process."""
        return {"url": self.url, "folder": str(self.folder), "pid": os.getpid()}

    def __str__(self) -> str:
        return line(self.url)

    def __repr__(self) -> str:
        return f"<Receiver {self.url}: {self._counts()}>"

    def _counts(self) -> str:
        return f"{plural(self.n_spans, 'span')} of {plural(self.n_sessions, 'session')}"


def receive(folder: Path, *, port: int = PORT, idle_s: float | None = None) -> Receiver:
    """Receive traces while this process runs.

    Args:
        folder: Folder for the traces; new ones are added to existing ones.
        port: Port on loopback; 0 chooses a free one.
        idle_s: Seconds without a request after which `wait` ends; None for no end.

    Raises:
        StackError: The port is taken, or may not be used.
        StoreError: The folder cannot be written, or another process writes to it.
        MissingExtra: opentelemetry-proto is not installed.
    """
    for name in ("trace.v1.trace_service_pb2", "logs.v1.logs_service_pb2"):
        need(f"opentelemetry.proto.collector.{name}", extra="otel")
    with contextlib.ExitStack() as opened:
        intake = opened.enter_context(_Intake(folder))
        return Receiver(folder, _Server(intake, port), opened.pop_all(), idle_s)


class _Intake:
    """The file of received requests, and their counts."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._opened = contextlib.ExitStack()
        self._session_by_trace: dict[str, str | None] = {}
        self.n_spans = 0
        self.last_at = time.monotonic()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            holder = self._opened.enter_context(locked(folder / ".lock"))
            if holder is not None:
                raise StoreError(f"{holder} already writes to {folder}", hint="choose another -o")
            self._file = self._opened.enter_context((folder / FILE).open("a+b", buffering=0))
            self._size = _whole_lines(self._file)
            self._file.truncate(self._size)
        except OSError as error:
            self._opened.close()
            raise StoreError(f"{folder} cannot be written: {error.strerror}") from error
        except BaseException:
            self._opened.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def n_sessions(self) -> int:
        with self._lock:
            found = self._session_by_trace.items()
            return len({session or f"trace {trace}" for trace, session in found})

    def add(self, request: JsonObject, rows: list[Row]) -> None:
        """Write a request as a line, and sync it to disk.

        Raises:
            OSError: It cannot be written; the file is as before.
        """
        data = json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        if len(data) > MOST_BYTES:
            raise Refused(f"more than {MOST_BYTES:,} bytes as JSON", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        with self._lock:
            try:
                rest = memoryview(data + b"\n")
                while rest:
                    rest = rest[self._file.write(rest) :]
                os.fsync(self._file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    self._file.truncate(self._size)
                raise
            self._size += len(data) + 1
            self.last_at = time.monotonic()
            for row in rows:
                self.n_spans += row.part == "span"
                said: Any = row.value["attributes"]
                session = next((str(said[key]) for key in SESSION_KEYS if said.get(key)), None)
                self._session_by_trace[row.trace_id] = session or self._session_by_trace.get(row.trace_id)


def _whole_lines(file: Any) -> int:
    """Return the bytes of whole lines in a file: a process may have been killed while writing."""
    at: int = file.seek(0, os.SEEK_END)
    while at > 0:
        begin = max(0, at - (1 << 16))
        file.seek(begin)
        found: int = file.read(at - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        at = begin
    return 0


class _Answer(NamedTuple):
    status: HTTPStatus
    media_type: str
    body: bytes


class _Server(LoopbackServer):
    grace_s = 5.0

    def __init__(self, intake: _Intake, port: int) -> None:
        self.intake = intake
        super().__init__(port, _Handler)


class _Handler(LoopbackHandler):
    server: _Server
    server_version = "trajkit-receive"

    def do_POST(self) -> None:
        media_type = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        try:
            found = self._taken(media_type)
        except BadBody as error:
            self.close_connection = True  # its body may be unread, and must not be parsed as a request
            found = _refusal(error.status, error.why, media_type)
        is_busy = found.status == HTTPStatus.SERVICE_UNAVAILABLE
        self.send(found.status, found.media_type, found.body, {"Retry-After": "5"} if is_busy else {})

    def _taken(self, media_type: str) -> _Answer:
        kind = _KINDS.get(self.path.partition("?")[0])
        if kind is None:
            raise Refused(f"only {' and '.join(_KINDS)} are accepted", HTTPStatus.NOT_FOUND)
        if "Origin" in self.headers:  # a web page must not write here
            raise Refused("pages in a browser cannot send traces to this address", HTTPStatus.FORBIDDEN)
        if media_type not in (_JSON, _PROTOBUF):
            raise Refused(f"{_PROTOBUF} and {_JSON} are accepted", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        data = _unpacked(
            self.read_body(_MOST_BYTES), self.headers.get("Content-Encoding", "identity").strip().lower()
        )
        try:
            request = json_of(data) if media_type == _JSON else json_of_protobuf(data, kind)
            found = list(rows_of(request))
        except BadDocument as error:
            raise Refused(str(error.problem)) from None
        rows = [one for one in found if isinstance(one, Row)]
        problems = [one for one in found if isinstance(one, BadDocument)]
        if request.get(kind):
            try:
                self.server.intake.add({kind: request[kind]}, rows)
            except OSError as error:
                why = f"it cannot be written: {error.strerror}"
                raise Refused(why, HTTPStatus.SERVICE_UNAVAILABLE) from error
        why = str(problems[0].problem) if problems else ""
        return _Answer(HTTPStatus.OK, media_type, _success(kind, len(problems), why, media_type))


def _unpacked(data: bytes, encoding: str) -> bytes:
    if encoding in ("", "identity"):
        return data
    if encoding != "gzip":
        why = f"Content-Encoding {quote(encoding)}: only gzip is accepted"
        raise Refused(why, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        found = unpacking.decompress(data, _MOST_BYTES)
    except zlib.error as error:
        raise Refused(f"not gzip: {error}") from None
    if unpacking.unconsumed_tail:
        raise Refused(f"more than {_MOST_BYTES:,} bytes", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    if not unpacking.eof:
        raise Refused("not gzip: it ends too early")
    return found


def _success(kind: str, n_rejected: int, why: str, media_type: str) -> bytes:
    name = "rejectedSpans" if kind == TRACES else "rejectedLogRecords"
    if media_type == _JSON:
        said = {"partialSuccess": {name: str(n_rejected), "errorMessage": why}} if n_rejected else {}
        return json.dumps(said).encode()
    if not n_rejected:
        return b""
    inner = b"\x08" + _varint(n_rejected) + _text(2, why)
    return b"\x0a" + _varint(len(inner)) + inner


def _refusal(status: HTTPStatus, why: str, media_type: str) -> _Answer:
    """A refusal with a `google.rpc.Status`."""
    if media_type == _PROTOBUF:
        return _Answer(status, _PROTOBUF, _text(2, why))
    return _Answer(status, _JSON, json.dumps({"message": why}).encode())


def _text(number: int, text: str) -> bytes:
    """A field of protobuf with a text."""
    data = text.encode("utf-8", "replace")
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
