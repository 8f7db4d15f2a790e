"""The HTTP API: chat completions, the list of models, and a health check."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trajkit._core.lazy import need
from trajkit.errors import TrajkitError
from trajkit.formats.chat.request import Refusal, request_of
from trajkit.models.generation.ask import Ask, Said
from trajkit.models.generation.batcher import Batcher
from trajkit.models.serving.chat_answer import Answer
from trajkit.models.serving.chat_request import ChatRequest, refusal_of

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_log = logging.getLogger(__name__)

_BYTES_PER_TOKEN = 24
"""Bytes of a request per token: four characters, each up to six bytes in JSON."""
_BYTES_BESIDE = 1 << 17
"""Bytes of a request for parts that are not in the prompt: schemas and field names."""
_ROOM = 1 << 17
"""Tokens of a model that does not give its context length."""
_BODY_S = 60
"""Seconds that a request's body may take."""
_MOST_PASSED_OVER = 1 << 28
"""Maximum bytes read from a body that is too long, so that the client can finish and gets the answer."""


class Chat:
    """Answers requests with local models.

    batcher: Generates the answers.
    max_new_tokens: Maximum tokens per answer, unless the request sets its own limit.
    api_key: Key that a request must have; None for no key.
    host: Name or address that the server listens on.
    """

    def __init__(
        self, batcher: Batcher, *, max_new_tokens: int, api_key: str | None = None, host: str = "localhost"
    ) -> None:
        self._batcher, self._model = batcher, batcher.model
        self._max_new_tokens, self._api_key = max_new_tokens, api_key
        self._started_at_s = int(time.time())
        self._names = frozenset(name.lower() for name in ("localhost", host, socket.gethostname()))
        self._longest_body = (batcher.model.voice(None).room or _ROOM) * _BYTES_PER_TOKEN + _BYTES_BESIDE

    def app(self) -> Starlette:
        """Return the application with its routes."""
        applications = need("starlette.applications", extra="serve")
        routing = need("starlette.routing", extra="serve")
        made: Starlette = applications.Starlette(
            routes=[
                routing.Route("/health", self._guarded(self._health, is_open=True)),
                routing.Route("/v1/models", self._guarded(self._models)),
                routing.Route("/v1/models/{name:path}", self._guarded(self._one_model)),
                routing.Route("/v1/chat/completions", self._guarded(self._complete), methods=["POST"]),
            ],
            exception_handlers={404: _missing, 405: _missing},
        )
        return made

    def _guarded(
        self, answer: Callable[[Request], Awaitable[Response]], *, is_open: bool = False
    ) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap an endpoint: check caller and key, and answer errors in OpenAI's format."""

        async def guarded(request: Request) -> Response:
            try:
                self._check_caller(request)
                if not is_open:
                    self._check_key(request)
                return await answer(request)
            except TrajkitError as error:
                return _refused(refusal_of(error))
            except Exception as error:  # noqa: BLE001 - a failure ends this request only
                _log.error("a request failed", exc_info=error)
                return _refused(_failure(error))

        return guarded

    def _check_caller(self, request: Request) -> None:
        """Refuse requests of web pages, sent from a page or by a name that was pointed to this address.

        A page cannot choose the host name that a browser sends, and no page is served at an IP address as its
        name. A request with the key is trusted.
        """
        name = _host(request)
        if not (name in self._names or _is_address(name) or self._api_key is not None):
            raise Refusal(
                f"this server does not answer under the name {name!r}: use its address, or start it with "
                "--host NAME or --api-key-location",
                status=403,
            )
        site = request.headers.get("sec-fetch-site", "none")
        if "origin" in request.headers or site not in ("none", "same-origin"):
            raise Refusal("this server does not answer web pages", status=403)

    def _check_key(self, request: Request) -> None:
        if self._api_key is None:
            return
        brought = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if not hmac.compare_digest(brought.encode(), self._api_key.encode()):
            raise Refusal("the API key is wrong", status=401, code="invalid_api_key")

    async def _health(self, _: Request) -> Response:
        if self._batcher.fault is not None:
            return _json({"status": "failed", "reason": self._batcher.fault}, 503)
        return _json({"status": "ok", "models": list(self._model.names)})

    async def _models(self, _: Request) -> Response:
        return _json({"object": "list", "data": [self._described(name) for name in self._model.names]})

    async def _one_model(self, request: Request) -> Response:
        return _json(self._described(self._model.voice(request.path_params["name"]).name))

    def _described(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._started_at_s, "owned_by": "trajkit"}

    async def _complete(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":  # web pages may send the other types without a preflight request
            raise Refusal(f"a request must be application/json, not {kind or 'without a type'}", status=415)
        asked = request_of(ChatRequest, await self._body(request))
        asks = asked.asks(max_new_tokens=self._max_new_tokens)
        answer = Answer(
            self._model.voice(asked.model),
            answer_id=f"chatcmpl-{secrets.token_hex(12)}",
            created_at_s=int(time.time()),
            has_ids=bool(asked.return_token_ids),
        )
        if asked.stream:
            return await self._stream(asked, asks, answer)
        said = await _unless_gone(request, self._all(asks))
        return _json(answer.whole(said))

    async def _body(self, request: Request) -> bytes:
        """Return the body, if it is not too long and comes in time.

        Raises:
            Refusal: It is too long, or comes too slowly.
        """
        read, n_bytes = bytearray(), 0
        try:
            async with asyncio.timeout(_BODY_S):
                async for part in request.stream():
                    n_bytes += len(part)
                    if n_bytes <= self._longest_body:
                        read += part
                    elif n_bytes > _MOST_PASSED_OVER:
                        break
        except TimeoutError:
            raise Refusal(f"the body did not come within {_BODY_S} s", status=408) from None
        if n_bytes > self._longest_body:
            room = self._model.voice(None).room or _ROOM
            raise Refusal(
                f"the body is longer than {self._longest_body:,} bytes; the model reads {room:,} tokens",
                status=413,
            )
        return bytes(read)

    async def _all(self, asks: list[Ask]) -> list[Said]:
        """Answer some requests together; when one fails, the others are cancelled."""
        tasks = [asyncio.create_task(self._batcher.ask(ask)) for ask in asks]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _stream(self, asked: ChatRequest, asks: list[Ask], answer: Answer) -> Response:
        """Stream the answers. A request that cannot be answered is refused before the first byte."""
        responses = need("starlette.responses", extra="serve")
        events = _Events(self._batcher, asks)
        try:
            first = await events.next()
        except BaseException:
            events.close()
            raise
        body = _server_sent(_chunks(events, first, asked, answer))
        response: Response = responses.StreamingResponse(body, media_type="text/event-stream")
        return response


class _Events:
    """The events of some answers: growing texts, and finished answers."""

    def __init__(self, batcher: Batcher, asks: list[Ask]) -> None:
        self._queue: asyncio.Queue[tuple[int, str | Said | Exception]] = asyncio.Queue()
        self._tasks = [asyncio.create_task(self._ask(batcher, *each)) for each in enumerate(asks)]

    async def _ask(self, batcher: Batcher, index: int, ask: Ask) -> None:
        try:
            said = await batcher.ask(ask, on_text=lambda text: self._queue.put_nowait((index, text)))
            self._queue.put_nowait((index, said))
        except Exception as error:  # noqa: BLE001 - raised in the reader of the stream
            self._queue.put_nowait((index, error))

    async def next(self) -> tuple[int, str | Said]:
        """Return the next event and the index of its answer.

        Raises:
            TrajkitError: A request cannot be answered, or the model failed.
        """
        index, event = await self._queue.get()
        if isinstance(event, Exception):
            raise event
        return index, event

    def close(self) -> None:
        """Cancel all answers."""
        for task in self._tasks:
            task.cancel()


async def _chunks(
    events: _Events, first: tuple[int, str | Said], asked: ChatRequest, answer: Answer
) -> AsyncIterator[dict[str, Any]]:
    """Yield the chunks of all answers."""
    n_answers = asked.n or 1
    told, said = [""] * n_answers, dict[int, Said]()
    try:
        for index in range(n_answers):
            yield answer.first(index)
        event: tuple[int, str | Said] | None = first
        while len(said) < n_answers:
            index, new = event if event is not None else await events.next()
            event = None
            text = new.text if isinstance(new, Said) else new
            if text.startswith(told[index]) and len(text) > len(told[index]):
                yield answer.piece(index, text[len(told[index]) :])
                told[index] = text
            if isinstance(new, Said):
                said[index] = new
                for chunk in answer.last(index, new):
                    yield chunk
        if asked.wants_usage:
            yield answer.used([said[index] for index in range(n_answers)])
    except TrajkitError as error:
        yield refusal_of(error).body
    except Exception as error:  # noqa: BLE001 - a failure ends this stream only
        _log.error("a stream failed", exc_info=error)
        yield _failure(error).body
    finally:
        events.close()


async def _server_sent(chunks: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        yield b"data: " + _written(chunk) + b"\n\n"
    yield b"data: [DONE]\n\n"


async def _unless_gone(request: Request, answer: Coroutine[Any, Any, list[Said]]) -> list[Said]:
    """Return the answer, or cancel it when the client has disconnected.

    Raises:
        TrajkitError: It could not be answered.
    """
    answering = asyncio.create_task(answer)
    leaving = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise Refusal("the client has disconnected", status=499)
        return answering.result()
    finally:
        for task in (answering, leaving):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await leaving


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _missing(request: Request, error: Exception) -> Response:
    status = int(getattr(error, "status_code", 404))
    return _refused(Refusal(f"there is no {request.method} {request.url.path} here", status=status))


def _failure(error: Exception) -> Refusal:
    """Return the answer to an unexpected error."""
    return Refusal(f"the server failed: {type(error).__name__}", status=500, kind="server_error")


def _host(request: Request) -> str:
    """Return the request's host name without the port; empty if it has none or several."""
    hosts = request.headers.getlist("host")
    try:
        return (urlsplit(f"//{hosts[0]}").hostname or "") if len(hosts) == 1 else ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _written(value: Any) -> bytes:
    """Encode JSON; half of a surrogate pair, which a model may write in a call, becomes a JSON escape."""
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace")


def _json(value: Any, status: int = 200) -> Response:
    responses = need("starlette.responses", extra="serve")
    made: Response = responses.Response(_written(value), status_code=status, media_type="application/json")
    return made


def _refused(refusal: Refusal) -> Response:
    return _json(refusal.body, refusal.status)
