"""Listening on an address until somebody says that it is enough."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from trajkit._core.lazy import need
from trajkit._core.loop import run_to_end
from trajkit.errors import StackError
from trajkit.models.generation.batcher import Batcher
from trajkit.models.generation.generate import SIDE_BY_SIDE
from trajkit.models.generation.model import LocalModel
from trajkit.models.serving.app import Chat

LOOPBACK = "127.0.0.1"
NEW_TOKENS = 1024
"""The most tokens of an answer where the request does not say."""

_BACKLOG = 2048
_MOST_CONNECTIONS = 512
"""More are told to come later (503). It is four times what is answered side by side, where that is more."""
_HEAD_S = 20
"""How long a connection may take to say what it asks."""
_IDLE_S = 600
"""How long a connection may be quiet. A gateway keeps some, and loses a request where one is just closed."""


def serve(
    model: LocalModel,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    max_new_tokens: int = NEW_TOKENS,
    side_by_side: int = SIDE_BY_SIDE,
    api_key: str | None = None,
    on_ready: Callable[[str], object],
) -> None:
    """Serve until the process is told to end (SIGTERM or Ctrl-C). Call it from the main thread.

    Requests that are being answered are answered to their end; a second signal does not wait for them.

    Args:
        model: What answers. It is not closed at the end.
        host: Where to listen.
        port: 0 takes a free one.
        max_new_tokens: The most tokens of an answer where the request does not say.
        side_by_side: The most requests that are answered at the same time; memory grows with it.
        api_key: What a request has to bring as its bearer token; None when nobody is asked.
        on_ready: Called with the address, which ends with `/v1`, once requests are taken.

    Raises:
        StackError: The address is taken, or is none of this machine.
        MissingExtra: starlette or uvicorn is not installed.
    """
    uvicorn = need("uvicorn", extra="serve")
    listening = _listen(host, port)
    batcher = Batcher(model, side_by_side=side_by_side)
    try:
        app = Chat(batcher, max_new_tokens=max_new_tokens, api_key=api_key, host=host).app()
        config = uvicorn.Config(
            app,
            http=_protocol(),
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=_IDLE_S,
            limit_concurrency=max(_MOST_CONNECTIONS, 4 * side_by_side),
        )
        server = uvicorn.Server(config)
        server.capture_signals = contextlib.nullcontext  # it would raise them again at the end
        url = f"http://{_shown(host)}:{listening.getsockname()[1]}/v1"
        with _ended_by_signals(server):
            run_to_end(_run(server, listening, lambda: on_ready(url)))
    finally:
        batcher.close()
        listening.close()


def _protocol() -> type[Any]:
    """uvicorn's, which ends a connection that does not say in time what it asks."""
    h11 = need("h11", extra="serve")
    made: Any = need("uvicorn.protocols.http.h11_impl", extra="serve").H11Protocol

    class Protocol(made):  # type: ignore[misc]
        late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self.unwatch()
            super().connection_lost(exc)

        def watch(self) -> None:
            """Wait for the head of a request as long as it is not whole."""
            if self.conn.their_state is not h11.IDLE:
                self.unwatch()
            elif self.late is None:
                self.late = self.loop.call_later(_HEAD_S, self.transport.close)

        def unwatch(self) -> None:
            if self.late is not None:
                self.late.cancel()
                self.late = None

    return Protocol


async def _run(server: Any, listening: socket.socket, say: Callable[[], object]) -> None:
    serving = asyncio.create_task(server.serve([listening]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)
    if not serving.done():
        say()
    await serving


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends at once (TCP_NODELAY) where a socket names its protocol: else each answer waits 40 ms
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        made.close()
        raise StackError(
            f"nothing can listen on {host}:{port}: {error}", hint="--port 0 takes a free one"
        ) from error
    return made


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@contextlib.contextmanager
def _ended_by_signals(server: Any) -> Iterator[None]:
    """Signals end a server softly, and a second one at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
