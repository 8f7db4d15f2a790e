"""Create a recorded client with the class, settings and connections of the user's own.

Where to record was a choice. A proxy around `chat.completions` and `responses` would have to follow every
method (create, parse, stream, raw and streaming responses, tool runners) and would not be an `OpenAI`. A
transport below the HTTP client would have to be put into the user's own HTTP client, which other clients may
share, and `with_options(http_client=...)` would lose it. So the recorded client is an object of a subclass
created for it, which overrides `_send_request`: the library sends each request and gets each response
through this method. There JSON is exactly as it is sent, copies (`with_options`) have the same class and are
recorded, too, and neither the user's client nor its class is changed.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from types import ModuleType
from typing import Any, ClassVar, TypeVar

from trajkit._core.lazy import need
from trajkit.errors import RequestError
from trajkit.rollouts.recorder.episode import RecordedEpisode, current_scope
from trajkit.rollouts.recorder.log import Answered, Asked, Log

ClientT = TypeVar("ClientT")
_HOOK = "_send_request"


def refuse_others(client: object) -> type[Any]:
    """Check the kind of a client, and return its recording mixin.

    Raises:
        RequestError: It is not a client of the package openai, or of an unsupported version.
        MissingExtra: The package openai is not installed.
    """
    openai = need("openai", extra="openai")
    if not isinstance(client, openai.OpenAI | openai.AsyncOpenAI):
        raise RequestError(
            f"a recorder takes an OpenAI or AsyncOpenAI client, not {type(client).__name__}",
            hint="trajkit.Recorder(OpenAI(), store=...)",
        )
    if not callable(getattr(type(client), _HOOK, None)):
        raise RequestError(
            f"the recorder does not support openai {openai.__version__}: it sends requests in another way",
            hint="pip install 'trajkit[openai]'",
        )
    return _Recorded if isinstance(client, openai.OpenAI) else _RecordedAsync


def recorded(client: ClientT, log: Log) -> ClientT:
    """Return a recorded copy of the client, with the same settings and connections.

    Raises:
        RequestError: As `refuse_others`.
        MissingExtra: The package openai is not installed.
    """
    mixin = refuse_others(client)
    if getattr(client, "_trajkit_log", None) is log:
        return client
    original = type(client)
    made = type(
        original.__name__,
        (mixin, original),
        {"__module__": original.__module__, "__qualname__": original.__qualname__, "_trajkit_log": log},
    )
    copy: Any = object.__new__(made)
    # `client.chat` and similar objects are created on first use, and keep their client
    vars(copy).update({name: value for name, value in vars(client).items() if not _is_cached(original, name)})
    return copy  # type: ignore[no-any-return]  # of a class that descends from the client's


def _is_cached(kind: type, name: str) -> bool:
    return isinstance(getattr(kind, name, None), functools.cached_property)


class _Recorded:
    """The mixin of a recorded client, before `OpenAI` in its base classes."""

    _trajkit_log: ClassVar[Log]

    def _send_request(self, request: Any, *, stream: bool, **options: Any) -> Any:
        send: Any = getattr(super(), _HOOK)
        call = _begin(self, request)
        if call is None:
            return send(request, stream=stream, **options)
        try:
            response = send(request, stream=stream, **options)
        except BaseException as error:
            call.failed(error)
            raise
        call.answered(response, is_async=False)
        return response


class _RecordedAsync:
    """The mixin of a recorded client, before `AsyncOpenAI` in its base classes."""

    _trajkit_log: ClassVar[Log]

    async def _send_request(self, request: Any, *, stream: bool, **options: Any) -> Any:
        send: Any = getattr(super(), _HOOK)
        call = _begin(self, request)
        if call is None:
            return await send(request, stream=stream, **options)
        try:
            response = await send(request, stream=stream, **options)
        except BaseException as error:
            call.failed(error)
            raise
        call.answered(response, is_async=True)
        return response


def _begin(client: Any, request: Any) -> RunningCall | None:
    log: Log = client._trajkit_log
    with log.guard("call"):
        log.refuse_forks()
        keys = [
            key
            for name in ("api_key", "admin_api_key")
            if isinstance(key := getattr(client, name, None), str)
        ]
        asked = log.asked(request, keys)
        if asked is not None:
            scope = current_scope(log)
            return RunningCall(log, asked, scope and scope.episode, scope and scope.agent)
    return None


class RunningCall:
    """One attempt at a call. No method raises.

    Args:
        log: Records the call.
        asked: The request.
        episode: The episode that it belongs to; None when it is outside any.
        agent: Name of the calling agent.
    """

    def __init__(self, log: Log, asked: Asked, episode: RecordedEpisode | None, agent: str | None) -> None:
        self._log = log
        self._asked = asked
        self._episode = episode
        self._agent = agent
        self.call_id, self._number = log.next_call()
        self.episode_id = self.call_id if episode is None else episode.episode_id
        self._chunks: list[bytes] = []
        self._response: Any = None
        self._ending = threading.Lock()
        self._is_ended = False
        self._started_at = datetime.now(UTC)
        self._started = self._last = time.perf_counter()

    def failed(self, error: BaseException) -> None:
        """Record that there is no answer."""
        with self._log.guard("call"):
            self._log.write_failed(self.episode_id, type(error).__name__)

    def answered(self, response: Any, *, is_async: bool) -> None:
        """Record the answer: a completed response now, and a stream when it ends.

        Args:
            response: The HTTP response.
            is_async: Whether it is of an asynchronous client.
        """
        self._last = time.perf_counter()
        with self._log.guard("call"):
            if not 200 <= response.status_code < 300:
                self._log.write_failed(self.episode_id, f"HTTP {response.status_code}")
                return
            if self._episode is not None:
                self._episode._answered(self.call_id, self._agent)
            if response.is_closed:
                self._write(response.content, response.headers)
                return
            self._response = type(response), response.status_code, response.headers
            response.stream = _tee_class(_package(response), is_async=is_async)(response.stream, self)
            self._log.running[self.call_id] = self

    def chunk(self, chunk: bytes) -> None:
        """Keep a chunk of a stream."""
        self._last = time.perf_counter()
        self._chunks.append(chunk)

    def ended(self) -> None:
        """Write a stream that has ended, or will not be read to its end."""
        with self._ending:
            if self._is_ended:
                return
            self._is_ended = True
        self._log.running.pop(self.call_id, None)
        with self._log.guard("call"):
            kind, status, headers = self._response
            raw = b"".join(self._chunks)
            if "content-encoding" in headers:  # the chunks are compressed; httpx can decompress them
                raw = kind(status, headers=headers, content=raw).content
            self._write(raw, headers)
        self._chunks = []

    def _write(self, answer: bytes, headers: Any) -> None:
        asked = self._asked
        header = {
            "episode": self.episode_id,
            "id": self.call_id,
            "number": self._number,
            "api": asked.api,
            "service": asked.service,
            "agent": self._agent,
            "started_at": self._started_at.isoformat(),
            "latency_s": round(self._last - self._started, 6),
            "is_stream": "text/event-stream" in headers.get("content-type", ""),
            "n_retries": asked.n_retries or None,
        }
        facts = {name: value for name, value in header.items() if value is not None}
        self._log.write_call(Answered(facts, asked, answer, is_outside=self._episode is None))


def _package(response: Any) -> ModuleType:
    """Return the HTTP library of a response: httpx2, or httpx for openai 2 or a user's client."""
    httpx2 = sys.modules.get("httpx2")
    return httpx2 if httpx2 and isinstance(response, httpx2.Response) else sys.modules["httpx"]


def _tee_class(streams: ModuleType, *, is_async: bool) -> type[Any]:
    """Return a class of recording streams: httpx requires a subclass of its own."""
    found = _tee_classes.get((streams.__name__, is_async))
    if found is None:
        base = streams.AsyncByteStream if is_async else streams.SyncByteStream
        found = type("TeedStream", (_AsyncTee if is_async else _SyncTee, base), {})
        _tee_classes[streams.__name__, is_async] = found
    return found


_tee_classes: dict[tuple[str, bool], type[Any]] = {}


class _Tee:
    def __init__(self, stream: Any, call: RunningCall) -> None:
        self._stream = stream
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)  # such as `elapsed`


class _SyncTee(_Tee):
    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            self._call.chunk(chunk)
            yield chunk

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            self._call.ended()


class _AsyncTee(_Tee):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        inner = self._stream.__aiter__()
        try:
            async for chunk in inner:
                self._call.chunk(chunk)
                yield chunk
        finally:
            if hasattr(inner, "aclose"):
                await inner.aclose()

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._call.ended()
